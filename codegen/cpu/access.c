// Reads and stores: along the vector variable contiguous, the same element for all lanes, or lane
// by lane (gathers and scatters).
#include "codegen/cpu/cpu.h"

typedef struct Place {
  LLVMTypeRef type; // storage
  LLVMValueRef base;
  LLVMValueRef offset; // elements, scalar: of lane 0
  LLVMValueRef lanes; // offset in each lane, or NULL: contiguous or the same
  bool contiguous;
} Place;

// The offset's parts in the order of their loops, so that each sum is made as far out as it can be.
static LLVMValueRef scalar_offset(Cpu *c, const Affine *a, const Val *rest) {
  LLVMValueRef off = cpu_i64(c, a->base);
  for (int level = 0; level <= c->depth; level++)
    for (uint32_t i = 0; i < c->s->nindex; i++) {
      uint8_t v = c->ns->var[i];
      if (v == NO_VAR || v == c->vec || !a->coef[i] || c->var[v].level != level) continue;
      LLVMValueRef t = c->var[v].at;
      if (a->coef[i] != 1) t = LLVMBuildMul(c->b, t, cpu_i64(c, a->coef[i]), "");
      off = LLVMBuildAdd(c->b, off, t, "");
    }
  for (uint32_t r = 0; r < a->nrest; r++) {
    if (rest[r].vec) continue;
    LLVMValueRef t = LLVMBuildMul(c->b, rest[r].v, cpu_i64(c, a->rest[r].coef), "");
    off = LLVMBuildAdd(c->b, off, t, "");
  }
  return off;
}

static int64_t vec_coef(Cpu *c, const Affine *a) {
  int64_t coef = 0;
  for (uint32_t i = 0; i < c->s->nindex; i++)
    if (c->vec != NO_VAR && c->ns->var[i] == c->vec) coef += a->coef[i];
  return coef;
}

static Place place(Cpu *c, const Affine *a, Id value, const Val *rest) {
  Place p = {.type = cpu_storage(c, c->f->value.at[value].type),
             .base = c->base[c->fp->layout[value].buffer]};
  CHECK(p.base);
  int64_t coef = vec_coef(c, a);
  p.offset = scalar_offset(c, a, rest);
  if (coef) {
    LLVMValueRef t = c->vbase[c->copy];
    if (coef != 1) t = LLVMBuildMul(c->b, t, cpu_i64(c, coef), "");
    p.offset = LLVMBuildAdd(c->b, p.offset, t, "");
  }
  for (uint32_t r = 0; r < a->nrest; r++) {
    if (!rest[r].vec) continue;
    Val scale = {cpu_i64(c, a->rest[r].coef), false};
    LLVMValueRef t = LLVMBuildMul(c->b, rest[r].v, cpu_splat(c, scale), "");
    p.lanes = p.lanes ? LLVMBuildAdd(c->b, p.lanes, t, "") : t;
  }
  p.contiguous = coef == 1 && !p.lanes;
  if (p.contiguous || (!coef && !p.lanes)) return p;
  LLVMValueRef all = cpu_splat(c, (Val){p.offset, false});
  if (coef) {
    LLVMValueRef step = cpu_splat(c, (Val){cpu_i64(c, coef), false});
    all = LLVMBuildAdd(c->b, all, LLVMBuildMul(c->b, cpu_iota(c, c->i64), step, ""), "");
  }
  p.lanes = p.lanes ? LLVMBuildAdd(c->b, all, p.lanes, "") : all;
  return p;
}

static LLVMValueRef align_of(Cpu *c, Dtype t) {
  return LLVMConstInt(c->i32, (unsigned)dtype_size(t), false);
}

// From storage to what expressions compute in.
static Val widen(Cpu *c, Dtype t, LLVMValueRef v, bool vec) {
  if (t == DT_BOOL) v = LLVMBuildICmp(c->b, LLVMIntNE, v, LLVMConstNull(LLVMTypeOf(v)), "");
  else if (is_half(t)) v = cpu_half_load(c, t, v);
  return (Val){v, vec};
}

static LLVMValueRef lane_pointers(Cpu *c, Place *p) {
  return LLVMBuildGEP2(c->b, p->type, p->base, &p->lanes, 1, "");
}

static LLVMValueRef element(Cpu *c, Place *p) {
  return LLVMBuildGEP2(c->b, p->type, p->base, &p->offset, 1, "");
}

static Val load_lanes(Cpu *c, Place *p, const Value *v, LLVMValueRef mask) {
  LLVMTypeRef vt = cpu_vec(c, p->type);
  LLVMValueRef r, align = align_of(c, v->type), none = LLVMConstNull(vt);
  if (p->contiguous) {
    LLVMValueRef at = element(c, p);
    if (mask) {
      r = cpu_intrinsic(c, "llvm.masked.load", (LLVMTypeRef[]){vt, c->ptr}, 2,
                        (LLVMValueRef[]){at, align, mask, none}, 4);
    } else {
      r = LLVMBuildLoad2(c->b, vt, at, v->name);
      LLVMSetAlignment(r, (unsigned)dtype_size(v->type));
    }
  } else {
    LLVMValueRef at = lane_pointers(c, p);
    if (!mask) mask = LLVMConstAllOnes(cpu_vec(c, c->i1));
    r = cpu_intrinsic(c, "llvm.masked.gather", (LLVMTypeRef[]){vt, LLVMTypeOf(at)}, 2,
                      (LLVMValueRef[]){at, align, mask, none}, 4);
  }
  return widen(c, v->type, r, true);
}

static Val load(Cpu *c, Place *p, const Value *v, Guard g) {
  if (g.c.vec && !p->lanes && !p->contiguous) p->lanes = cpu_splat(c, (Val){p->offset, false});
  if (p->lanes || p->contiguous) return load_lanes(c, p, v, cpu_mask(c, g));
  // A guarded scalar reads the first element where it may not read its own.
  if (g.c.v) p->offset = LLVMBuildSelect(c->b, g.c.v, p->offset, cpu_i64(c, 0), "");
  LLVMValueRef r = LLVMBuildLoad2(c->b, p->type, element(c, p), v->name);
  LLVMSetAlignment(r, (unsigned)dtype_size(v->type));
  return widen(c, v->type, r, false);
}

Val cpu_read(Cpu *c, Id read, Guard g) {
  Id value = (Id)ex(c->m, read)->integer;
  if (c->now[value].v) return c->now[value];
  const Value *v = &c->f->value.at[value];
  Affine a = affine_read(c->m, c->fp->layout, c->s, read);
  Val rest[2 * MAX_RANK];
  for (uint32_t r = 0; r < a.nrest; r++) rest[r] = cpu_subscript(c, a.rest[r].expr, g);
  if (!cpu_unsafe(c, read)) g = (Guard){0};
  LLVMBasicBlockRef here = cpu_at(c, cpu_need(c, read, g));
  Place p = place(c, &a, value, rest);
  Val r = load(c, &p, v, g);
  cpu_back(c, here);
  return r;
}

static Place lhs_place(Cpu *c) {
  Affine a = affine_lhs(c->m, c->f, c->fp->layout, c->s);
  Val rest[2 * MAX_RANK];
  for (uint32_t r = 0; r < a.nrest; r++) rest[r] = cpu_subscript(c, a.rest[r].expr, (Guard){0});
  return place(c, &a, c->s->lhs, rest);
}

Val cpu_read_lhs(Cpu *c) {
  Place p = lhs_place(c);
  return load(c, &p, &c->f->value.at[c->s->lhs], (Guard){0});
}

static LLVMValueRef narrow(Cpu *c, Dtype t, Val v) {
  LLVMTypeRef st = cpu_storage(c, t);
  if (v.vec) st = cpu_vec(c, st);
  if (t == DT_BOOL) return LLVMBuildZExt(c->b, v.v, st, "");
  if (is_half(t)) return cpu_half_store(c, t, v.v);
  return scalar_of(t) == SC_REAL && LLVMTypeOf(v.v) != st ? LLVMBuildFPCast(c->b, v.v, st, "")
                                                          : v.v;
}

static void store(Cpu *c, Place *p, Dtype t, Val v) {
  bool lanes = p->lanes || p->contiguous;
  CHECK(lanes || !v.vec);
  if (lanes) v = (Val){cpu_splat(c, v), true};
  LLVMValueRef x = narrow(c, t, v), align = align_of(c, t);
  LLVMValueRef mask = lanes ? c->vmask[c->copy] : NULL;
  if (p->lanes) {
    LLVMValueRef at = lane_pointers(c, p);
    if (!mask) mask = LLVMConstAllOnes(cpu_vec(c, c->i1));
    cpu_intrinsic(c, "llvm.masked.scatter", (LLVMTypeRef[]){LLVMTypeOf(x), LLVMTypeOf(at)}, 2,
                  (LLVMValueRef[]){x, at, align, mask}, 4);
  } else if (mask) {
    cpu_intrinsic(c, "llvm.masked.store", (LLVMTypeRef[]){LLVMTypeOf(x), c->ptr}, 2,
                  (LLVMValueRef[]){x, element(c, p), align, mask}, 4);
  } else {
    LLVMSetAlignment(LLVMBuildStore(c->b, x, element(c, p)), (unsigned)dtype_size(t));
  }
}

void cpu_store(Cpu *c, Val v) {
  Place p = lhs_place(c);
  store(c, &p, c->f->value.at[c->s->lhs].type, v);
}

static Place neighbours(Cpu *c, LLVMValueRef base, Dtype t) {
  return (Place){.type = cpu_storage(c, t), .base = base, .offset = c->vbase[c->copy], .contiguous = true};
}

Val cpu_load_at(Cpu *c, LLVMValueRef base, Dtype t) {
  Place p = neighbours(c, base, t);
  return load_lanes(c, &p, &(Value){.name = str_intern("sum"), .type = t}, c->vmask[c->copy]);
}

void cpu_store_at(Cpu *c, LLVMValueRef base, Dtype t, Val v) {
  Place p = neighbours(c, base, t);
  store(c, &p, t, v);
}
