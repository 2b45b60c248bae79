// Files: reading, parsing, `use`, and the declarations in them.
#include <errno.h>
#include <stdlib.h>

#include "frontend/front.h"

enum { MAX_FILE_BYTES = 1 << 24 };

static char *read_file(Front *fr, Str path, size_t *n) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  Buf b = {0};
  char part[65536];
  size_t got;
  while (b.n <= MAX_FILE_BYTES && (got = fread(part, 1, sizeof part, f)) > 0)
    buf_write(&b, part, got);
  bool bad = ferror(f) != 0;
  if (!bad && b.n > MAX_FILE_BYTES) errno = EFBIG;
  fclose(f);
  char *text = NULL;
  if (!bad && b.n <= MAX_FILE_BYTES) {
    text = arena_alloc(fr->arena, b.n + 1);
    if (b.n) memcpy(text, b.text, b.n);
    *n = b.n;
  }
  buf_free(&b);
  return text;
}

static Unit *parse_unit(Front *fr, Str path, const char *text, size_t n) {
  uint32_t before = fr->src->nerror;
  Parser p = {.arena = fr->arena, .src = fr->src, .text = text, .n = n};
  p.file = sources_add(fr->src, path, text, n);
  parse_text(&p);
  fr->nerror += fr->src->nerror - before;
  Unit *u = NEW(fr->arena, Unit);
  u->path = path;
  u->file = p.file;
  u->decl = p.decl;
  PUSH(fr->arena, fr->unit, u);
  return u;
}

static bool is_file(Str path) {
  FILE *f = fopen(path, "rb");
  if (f) fclose(f);
  return f != NULL;
}

// -I directories in order, then the directory of the file that says `use`, then the stdlib.
static Str find_use(Front *fr, const Unit *from, Str name) {
  const FrontendOptions *o = fr->opt;
  Str path;
  for (uint32_t i = 0; i < o->ninclude; i++)
    if (is_file(path = str_printf("%s/%s.dt", o->include[i], name))) return path;
  const char *slash = strrchr(from->path, '/');
  int dir = slash ? (int)(slash - from->path + 1) : 0;
  if (is_file(path = str_printf("%.*s%s.dt", dir, from->path, name))) return path;
  if (o->stdlib && is_file(path = str_printf("%s/%s.dt", o->stdlib, name))) return path;
  return NULL;
}

static void load_uses(Front *fr, Unit *u) {
  for (uint32_t i = 0; i < u->decl.n; i++) {
    AstDecl *d = u->decl.at[i];
    d->owner = u;
    if (d->kind != D_USE) continue;
    Use use = {d->name, NULL};
    Str path = find_use(fr, u, d->name);
    if (path) use.unit = unit_load(fr, path, NULL, d->loc);
    else
      err(fr, d->name_loc,
          "no file '%s.dt' in the -I directories, beside this file or in the stdlib", d->name);
    PUSH(fr->arena, u->use, use);
  }
}

// Enters the declarations by name.
static void enter_declarations(Front *fr, Unit *u) {
  StrMap first[2] = {{0}}; // a train block has its model's name
  for (uint32_t i = 0; i < u->decl.n; i++) {
    AstDecl *b = u->decl.at[i];
    if (map_find(&u->found[b->kind], b->name) == NONE)
      map_set(fr->arena, &u->found[b->kind], b->name, i);
    StrMap *names = &first[b->kind == D_TRAIN];
    uint32_t j = map_find(names, b->name);
    if (j == NONE) {
      map_set(fr->arena, names, b->name, i);
      continue;
    }
    AstDecl *a = u->decl.at[j];
    if (a->kind == D_USE && b->kind == D_USE) continue;
    err(fr, b->name_loc, "'%s' is declared twice", b->name);
    note(fr, a->name_loc, "the first declaration is here");
  }
}

Unit *unit_load(Front *fr, Str path, const char *text, Id loc) {
  for (uint32_t i = 0; i < fr->unit.n; i++)
    if (fr->unit.at[i]->path == path) return fr->unit.at[i];
  size_t n = text ? strlen(text) : 0;
  errno = 0;
  if (!text) text = read_file(fr, path, &n);
  if (!text) {
    err(fr, loc, "cannot read '%s': %s", path, strerror(errno));
    return NULL;
  }
  Unit *u = parse_unit(fr, path, text, n);
  enter_declarations(fr, u);
  load_uses(fr, u);
  return u;
}

AstDecl *unit_find(Unit *u, Str name, DeclKind kind) {
  uint32_t i = map_find(&u->found[kind], name);
  return i == NONE ? NULL : u->decl.at[i];
}

Unit *unit_use(Unit *u, Str name, bool *known) {
  for (uint32_t i = 0; i < u->use.n; i++)
    if (u->use.at[i].name == name) {
      *known = true;
      return u->use.at[i].unit;
    }
  *known = false;
  return NULL;
}

// NAME=VALUE of the command line: the value is an expression; what is none (a path, say) is a
// string.
void parse_define(Front *fr, Str text, Str *name, Id *name_loc, Ast **value) {
  const char *eq = strchr(text, '=');
  CHECK(eq && eq > text); // the command line's reader has seen to it
  *name = str_internn(text, (size_t)(eq - text));
  Str source = str_printf("%*s%s", (int)(eq - text) + 1, "", eq + 1);
  Sources *src = fr->src;
  Parser p = {
      .arena = fr->arena, .src = src, .text = source, .n = strlen(source), .only_expr = true};
  p.file = sources_add(src, str_intern("<command line>"), text, strlen(text));
  *name_loc = loc_new(src, p.file, 1, 1, (uint32_t)(eq - text), 0);
  uint32_t nerror = src->nerror, max_errors = src->max_errors;
  src->nerror =
      1; // beyond the maximum: a value that does not parse is no error, and nothing is printed
  src->max_errors = 0;
  parse_text(&p);
  bool ok = src->nerror == 1 && p.expr;
  src->nerror = nerror;
  src->max_errors = max_errors;
  *value = p.expr;
  if (ok) return;
  uint32_t at = (uint32_t)(eq - text) + 1;
  bool digits = eq[1] && !eq[1 + strspn(eq + 1, "0123456789_")]; // more than 64 bits hold
  *value = ast_new(&p, digits || !eq[1] ? A_ERROR : A_STR,
                   (Span){1, at + 1, at, (uint32_t)strlen(text)});
  (*value)->name = str_intern(eq + 1);
  if (digits) err(fr, (*value)->loc, "%s does not fit in 64 bits", eq + 1);
  if (!eq[1]) err(fr, *name_loc, "-D %s= gives no value", *name);
}
