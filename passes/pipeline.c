// Cuts the step into chunks for a pipeline: forward and backward functions of consecutive layers.
// requires: step and eval, with parameters and gradients as their last arguments; simplify, so that
//   what is dead needs no stage.
// guarantees: where Module.stages is above 1: Module.chunk has stages * chunks members, each with a
//   forward and a backward function (split: and one for the gradients of its parameters), an eval
//   and a sample function, where the model has those, and the parameters they use; no ENTRY_STEP, ENTRY_EVAL, ENTRY_SAMPLE.
// invalidates: positions of functions.
//
// Run one after the other, forward.0 to forward.N, backward.N to backward.0 do what the step did,
// in the same order for each sum: a chunk's functions compute the same statements. Values that pass
// between them are their arguments and results (passes/pipeline/emit.c).
#include "passes/passes.h"
#include "passes/pipeline/pipeline.h"

bool pass_pipeline(Module *m) {
  if (m->stages < 2 || m->chunk.n || m->entry[ENTRY_STEP] == NONE || !m->param.n) return true;
  Cut step, eval, sample;
  if (!cut_step(m, m->entry[ENTRY_STEP], &step) || !cut_place(&step)) return false;
  if (m->split && !cut_split(&step)) return false;
  if (!cut_emit(&step)) return false;
  ChunkSets use = cut_use(&step);
  if (m->entry[ENTRY_EVAL] != NONE) {
    if (!cut_eval(m, m->entry[ENTRY_EVAL], "validate", &step, &use, &eval)) return false;
    cut_emit_eval(&eval, CHUNK_EVAL);
  }
  if (m->entry[ENTRY_SAMPLE] != NONE) {
    if (!cut_eval(m, m->entry[ENTRY_SAMPLE], "sample from", &step, &use, &sample)) return false;
    cut_emit_eval(&sample, CHUNK_SAMPLE);
  }
  m->entry[ENTRY_STEP] = m->entry[ENTRY_EVAL] = m->entry[ENTRY_SAMPLE] = NONE;
  module_sweep(m);
  return true;
}
