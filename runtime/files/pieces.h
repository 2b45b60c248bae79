// The pieces of a tensor that each rank holds, for files, which hold tensors whole. Any rank can
// compute them for every rank.
//
// A tensor (an instance of runtime/model/units.h) is split over tp and cp into local arrays; the ranks that
// have the same one cut it into pieces, as ZeRO does in every stage. Each element of the whole is in
// the piece of one rank: copies (on other ranks of tp where tp does not split it, in other zero groups)
// belong to no rank. Of a pipeline's stages that hold the same tensor the first is responsible for it. Tensors go by
// their number in the model.
#ifndef DTC_RUNTIME_PIECES_H
#define DTC_RUNTIME_PIECES_H

#include "runtime/model/layout.h"
#include "runtime/train/zero.h"

const DtInstance *dt_model_instance(const DtZero *z, int64_t number); // on its stage
const DtParam *dt_model_param(const DtZero *z, int64_t number);

// A rank of any launch: the sizes of the mesh's axes, and its numbers along them.
typedef struct DtMesh {
  int degree[DT_AXES], coord[DT_AXES];
} DtMesh;
// The local array of a parameter's instances there, and the elements of it that the rank answers for in files.
void dt_mesh_layout(const DtMesh *m, const DtParam *p, DtLayout *l);
DtRange dt_mesh_piece(const DtMesh *m, const DtStages *s, const DtCut *cut, int64_t instance, const DtLayout *l);

// The same of a rank of this launch: the local array of an instance.
void dt_piece_layout(const DtZero *z, int64_t instance, int rank, DtLayout *l);

// The elements of its local array that a rank answers for in files.
DtRange dt_piece(const DtZero *z, int64_t instance, int rank, const DtLayout *l);

#endif
