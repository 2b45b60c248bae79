// Sizes at which the compiler chooses another implementation, and at which its searches stop: one
// table, in Module.limits. No file of passes/ or codegen/lower defines such a number.
//
// Every combination of legal values gives a program that means the same; tests lower the limits
// so that small programs take the paths of large ones (DTC_LIMITS, doc/hacking.md). Sizes that are
// only those of an array (MAX_INDEX) are not here.
#ifndef DTC_LIMITS_H
#define DTC_LIMITS_H

#include <stdint.h>

#include "ir/util.h"

// Of the compiler, whatever it compiles for: X(name, default, least, most, meaning)
#define COMPILER_LIMITS(X)                                                                         \
  /* passes/differentiate/invert.c */                                                              \
  X(compare_elements, 8, 1, 1 << 30, "a gather is inverted by comparing up to here")               \
  /* passes/normalise.c */                                                                         \
  X(inline_points, 1 << 16, 0, MOST_LIMIT, "points of a value that is computed where read")        \
  X(inline_operators, 12, 0, 1000, "operators in such a value")                                    \
  X(lift_ratio, 8, 1, MOST_LIMIT, "evaluations that a function saves to become a statement")       \
  X(product_factors, 16, 2, 16, "factors of a product that is taken apart")                        \
  /* passes/shard*.c: the search for a plan over ranks */                                          \
  X(search_first, 48, 1, 1 << 30, "states that the first search keeps at an item")                 \
  X(search_orders, 1200, 1, 1 << 30, "states that the search of each order keeps")                 \
  X(search_last, 300000, 1, 1 << 30, "states that the last search keeps")                          \
  X(search_kept, 48, 1, 1 << 16, "states of a group that are compared with new ones")              \
  X(search_states, 1000000, 0, MOST_LIMIT, "states in all searches of an axis")                    \
  X(search_ways, 729, 1, 1 << 30, "ways to split a statement and to bring its operands there")       \
  X(search_combinations, 512, 1, 1 << 30, "combinations of what a stack has in and out")           \
  /* passes/recompute: what is saved within a budget of bytes */                                   \
  X(keep_nodes, 250, 0, 1 << 30, "nodes of the search for the least cost within a budget")         \
  /* ir/prover.c: what is not proved within these is taken for unknown */                          \
  X(prove_atoms, 2000, 1, 1 << 20, "different unknowns of a statement")                            \
  X(prove_definitions, 4, 0, 4, "nested definitions that a proof looks through")                   \
  X(prove_forms, 3, 1, 3, "forms that are subtracted from a goal")                                 \
  X(prove_cases, 4, 0, 4, "nested cases of a proof")                                               \
  X(prove_work, 3000, 1, 1 << 30, "forms that are tried for a goal")                               \
  /* driver/compile.c; tests that compile much and run it once have 0 */                           \
  X(optimise, 3, 0, 3, "optimisation of kernels and of host C")

// Of the target, which states their values (Target.limits of codegen/target.h): X(name, least, most, meaning)
#define TARGET_LIMITS(X)                                                                           \
  /* costs: passes/cost.c, codegen/host/chunk.c, passes/shard/ */                         \
  X(loop_flops, 1, 1 << 24, "operations of products that cost as much as one of loops")            \
  X(slow_flops, 1, 1 << 24, "and as one of exp and its like")                                      \
  X(byte_flops, 1, 1 << 24, "and as a byte of memory that a kernel moves")                         \
  X(sent_flops, 1, 1 << 24, "and as a byte that ranks exchange")                                   \
  X(byte_points, 1, 1 << 24, "points of products that cost as much as a byte sent, in a plan")     \
  X(byte_traffic, 1, 1 << 24, "bytes of memory that cost as much as a byte sent, in a plan")       \
  /* wanted parallelism: passes/normalise.c cuts reductions, codegen/lower/join.c keeps grids */   \
  X(cut_points, 2, MOST_LIMIT, "points of a sum to few results that is cut in blocks")             \
  X(cut_results, 1, MOST_LIMIT, "results of a reduction that are few")                             \
  X(cut_block, 1, 1 << 24, "least points of a block")                                              \
  X(cut_block_most, 2, 1 << 24, "most points of a block of one index")                             \
  X(cut_partials, 1, MOST_LIMIT, "results of all blocks together")                                 \
  X(rows_points, 2, MOST_LIMIT, "points of a sum to some results that is cut in rows")             \
  X(rows_results, 1, MOST_LIMIT, "results of a reduction that are some")                           \
  X(rows_block, 1, 1 << 24, "least rows of a block")                                               \
  X(join_points, 1, MOST_LIMIT, "points of a grid that are few for threads to share")              \
  /* the least product: passes/normalise/sum.c, codegen/lower/product.c */                         \
  X(product_side, 1, MOST_LIMIT, "rows and columns of a sum that is a matrix product")             \
  X(product_sum, 1, MOST_LIMIT, "its terms")                                                       \
  X(product_work, 1, MOST_LIMIT, "its multiplications")                                            \
  X(product_loops, 0, 4, "loops around a matrix product")                                          \
  /* what a product's kernel does with its sums: passes/normalise/, codegen/lower/epilogue.c */     \
  X(plus_first, 0, 1, "1: to a product a residual is added before the bias")                       \
  X(plus_points, 0, MOST_LIMIT, "elements of a product that adds a residual to its sums")          \
  X(act_points, 0, MOST_LIMIT, "elements of a product that applies a function to its sums")        \
  /* codegen/lower/scan.c */                                                                       \
  X(scan_extent, 2, MOST_LIMIT, "elements of a running sum that is one pass")                      \
  /* what one kernel holds: codegen/lower/join.c, nest.c */                                        \
  X(kernel_statements, 1, 40, "statements of a kernel")                                            \
  X(nest_statements, 1, 48, "pointwise statements that share loops")                               \
  X(nest_reductions, 1, 4, "reductions that share loops")                                          \
  X(join_work, 0, MOST_LIMIT, "points of statements that join a kernel whatever its grid")         \
  X(join_elements, 1, MOST_LIMIT, "elements of a value whose readers share a kernel")              \
  X(join_bytes, 0, MOST_LIMIT, "bytes at a grid point that stay in a cache")                       \
  X(row_bytes, 0, 1 << 20, "bytes of a row that a kernel keeps at a grid point")                   \
  /* the target's own schedule */                                                                  \
  X(lanes, 1, 1024, "lanes side by side, in costs")                                                \
  X(lane_tile, 1, 1 << 24, "points of a task's row of lanes")                                      \
  X(reduce_tile, 1, 1 << 24, "the same where each does a loop")                                    \
  X(task_ns, 0, MOST_LIMIT, "nanoseconds that a task should take")                                 \
  X(share_ns, 0, MOST_LIMIT, "nanoseconds of a kernel that eight threads share")                   \
  X(fill_elements, 1, MOST_LIMIT, "elements of a task that fills with zeros")                      \
  X(chain, 2, 1 << 24, "additions one after another in a sum")                                     \
  /* of GPUs: codegen/cuda/schedule.c */                                                           \
  X(team_points, 2, MOST_LIMIT, "points that threads share in turn")                               \
  X(shared_bytes, 2048, 48 << 10, "bytes of memory that the threads of a team share")

#define MOST_LIMIT ((int64_t)1 << 53)

typedef struct Limits {
#define X(name, value, least, most, meaning) int64_t name;
  COMPILER_LIMITS(X)
#undef X
#define X(name, least, most, meaning) int64_t name;
  TARGET_LIMITS(X)
#undef X
} Limits;

// The compiler's; the target's are 0, which is for modules that are not compiled.
extern const Limits default_limits;
// Sets what `text`, "name=value,name=value", names. False with a message in `error` where a name is
// unknown or a value is not a number within its bounds.
bool limits_set(Limits *l, const char *text, Buf *error);
// The limits that differ from the usual ones, in the form that limits_set takes.
void limits_print(const Limits *l, const Limits *usual, Buf *out);
// Whether each is within its bounds; else the name of one that is not is in *which.
bool limits_legal(const Limits *l, const char **which);

#endif
