// --report html: one page that needs nothing else, for a screen or for paper. Every number of
// --report json is in it, in a `data` element whose id is the number's name there and whose value
// is exact; the visible text has units. A rank's memory and a pipeline's timeline are drawn, and the files of a run
// that it is given: losses of a log, times of a profile.
#include "codegen/target.h"
#include "driver/html.h"
#include "driver/report.h"

#include <inttypes.h>
#include <math.h>

static void count(FILE *out, const char *id, int64_t n) {
  fprintf(out, "<data id=\"%s\" value=\"%" PRId64 "\">", id, n);
  html_digits(out, n);
  fputs("</data>", out);
}

static void bytes(FILE *out, const char *id, double n) {
  if (*id) fprintf(out, "<data id=\"%s\" value=\"%.0f\">", id, n);
  else fprintf(out, "<data value=\"%.0f\">", n);
  html_scaled(out, n, 1024, "B");
  fputs("</data>", out);
}

static void flops(FILE *out, const char *id, double n) {
  fprintf(out, "<data id=\"%s\" value=\"%.17g\">", id, n);
  html_scaled(out, n, 1000, "FLOP");
  fputs("</data>", out);
}

static double bubble_of(const Report *r) {
  return r->bubble.all ? (double)r->bubble.idle / (double)r->bubble.all : 0.0;
}

static void row(FILE *out, const char *label, const char *id, int64_t n) {
  fprintf(out, "<tr><th>%s<td>", label);
  count(out, id, n);
  fputs("\n", out);
}

// ---- the page ----

static const char head[] =
    "<style>\n"
    ":root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #dfe4ea; --card: "
    "#f6f8fa;\n"
    "  --paper: #fff; --f: #3b6fb6; --b: #d9822b; --w: #4f9d69 }\n"
    "@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --soft: #9aa6b5; --line: "
    "#323a45;\n"
    "  --card: #1e242d; --paper: #14181e; --f: #6b9be0; --b: #e59b4f; --w: #6dbb88 } }\n"
    "* { box-sizing: border-box } body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink);\n"
    "  background: var(--paper); max-width: 66rem; margin: 0 auto; padding: 2rem 1.2rem 4rem }\n"
    "h1 { font-size: 2rem; line-height: 1.2; margin: 0 } h2 { font-size: 1.15rem; margin: 2.6rem 0 "
    ".6rem }\n"
    "p { margin: .4rem 0 .8rem; max-width: 46rem } .soft, caption { color: var(--soft) }\n"
    ".cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: "
    ".8rem;\n"
    "  margin: 1.4rem 0 0 } .card { background: var(--card); border: 1px solid var(--line);\n"
    "  border-radius: .5rem; padding: .7rem .9rem } .card strong { display: block; font-size: "
    "1.45rem;\n"
    "  font-weight: 600; font-variant-numeric: tabular-nums; white-space: nowrap }\n"
    ".two { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 0 "
    "3rem }\n"
    ".wide { overflow-x: auto } table { border-collapse: collapse; width: 100% }\n"
    "th { text-align: left; font-weight: normal } thead th, thead td { color: var(--soft); "
    "font-size: .85rem }\n"
    "th, td { padding: .28rem .9rem .28rem 0; border-bottom: 1px solid var(--line) }\n"
    "th:last-child, td:last-child { padding-right: 0 } tr.sum th, tr.sum td { font-weight: 600 }\n"
    "td { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }\n"
    "td.bar { width: 34%; min-width: 5rem } td.bar i { display: block; height: .6rem; "
    "border-radius: .2rem;\n"
    "  background: var(--f); min-width: 1px } code { white-space: nowrap; font-size: .92em }\n"
    ".stack { display: flex; height: 2.2rem; border-radius: .4rem; overflow: hidden; margin: .8rem "
    "0 .5rem;\n"
    "  background: var(--card) } .stack i { min-width: 0; border-right: 1px solid var(--paper) }\n"
    ".key { display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; "
    "margin-right: .45rem;\n"
    "  vertical-align: -.08rem } .legend span { margin-right: 1.2rem; white-space: nowrap }\n"
    "svg { display: block; width: 100%; min-width: 40rem } svg text { font: 12px system-ui, "
    "sans-serif;\n"
    "  fill: var(--soft) } svg line { stroke: var(--line) } .idle { fill: var(--card) }\n"
    "h3 { font-size: 1rem; font-weight: 600; margin: 1rem 0 .3rem } svg .losses { fill: none; stroke: var(--f);\n"
    "  stroke-width: 1.6; stroke-linejoin: round } svg .val { fill: var(--b); stroke: var(--paper) }\n"
    "#lines code, #spent code { white-space: normal;\n"
    "  overflow-wrap: break-word } #lines td.bar, #spent td.bar { width: 14%; min-width: 3rem } #spent th { font-size: .88rem } #spent th:first-child { min-width: 11rem }\n"
    "svg .block { stroke: var(--paper); stroke-width: .5 } svg text.name { fill: #111; font-size: 11px }\n"
    ".F { fill: var(--f); background: var(--f) } .B { fill: var(--b); background: var(--b) }\n"
    ".W { fill: var(--w); background: var(--w) }\n"
    "@media (max-width: 34rem) { .exact, #lines td.bar, #spent td.bar { display: none } h1 { font-size: 1.6rem } td.bar { "
    "min-width: 3rem }\n"
    "  th, td { padding-right: .6rem } }\n"
    "@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #ccc; --card: "
    "#f4f4f4;\n"
    "  --paper: #fff; --f: #3b6fb6; --b: #d9822b; --w: #4f9d69 } * { print-color-adjust: exact;\n"
    "  -webkit-print-color-adjust: exact } body { font-size: 10.5pt; max-width: none; padding: 0 "
    "}\n"
    "  .cards { grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)) } h2 { break-after: "
    "avoid; margin-top: 1.4rem } tr, .card, svg, .stack { break-inside: avoid }\n"
    "  #spent td.bar { display: none } #spent { font-size: .85em }\n"
    "  .wide { overflow: visible } svg { min-width: 0 } thead { display: table-header-group } }\n"
    "</style>\n";

static void card(FILE *out, const char *label, double v, double step, const char *unit) {
  fputs("<div class=\"card\"><strong>", out);
  html_scaled(out, v, step, unit);
  fprintf(out, "</strong><span class=\"soft\">%s</span></div>\n", label);
}

static void cards_html(const Report *r, FILE *out) {
  fputs("<div class=\"cards\">\n", out);
  card(out, "parameters", (double)r->parameters, 1000, "");
  card(out, "a microbatch, forward and backward", r->matrix_flops + r->other_flops, 1000, "FLOP");
  card(out, "memory of a rank", (double)r->total_bytes, 1024, "B");
  double sent = 0;
  for (int i = 0; i < r->traffic.n; i++) sent += r->traffic.row[i].bytes;
  if (r->traffic.n) card(out, "sent by a rank in a step", sent, 1024, "B");
  if (r->bubble.all)
    fprintf(out,
            "<div class=\"card\"><strong>%.1f%%</strong><span class=\"soft\">of the stages' time "
            "is idle</span></div>\n",
            100 * bubble_of(r));
  fputs("</div>\n", out);
}

static void model_html(const Report *r, const Module *m, FILE *out) {
  fputs("<div class=\"two\"><section>\n<h2>Model</h2>\n<table>\n", out);
  fprintf(out, "<tr><th>precision<td id=\"precision\">%s\n", dtype_name[param_type(m)]);
  row(out, "parameters", "parameters", r->parameters);
  row(out, "samples in a batch", "batch", m->train.batch);
  row(out, "samples in a microbatch", "microbatch", m->train.microbatch);
  row(out, "microbatches in a step", "microbatches", r->microbatches);
  row(out, "microbatches that a rank runs at once", "in_flight", r->in_flight);
  row(out, "kernels a microbatch", "kernels", r->kernels);
  fputs("<tr><th>products and attention, a microbatch<td>", out);
  flops(out, "matrix_flops", r->matrix_flops);
  fputs("\n<tr><th>all else<td>", out);
  flops(out, "other_flops", r->other_flops);
  fputs("\n</table>\n</section>\n", out);
}

static void layout_html(const Report *r, const Module *m, FILE *out) {
  fputs("<section>\n<h2>Layout</h2>\n<table>\n", out);
  for (uint32_t a = 0; a < m->axis.n; a++) {
    const Axis *x = &m->axis.at[a];
    uint32_t other = axis_other(m, a); // factors of one axis are one
    if (x->part == AXIS_OUTER) continue;
    row(out, x->id == AXIS_TP ? "tensor-parallel ranks" : "context-parallel ranks", axis_whole_name(m, a),
        x->size * (other == NONE ? 1 : m->axis.at[other].size));
  }
  row(out, "pipeline stages", "stages", r->stages);
  row(out, "data-parallel ranks", "ranks", r->ranks);
  row(out, "ZeRO stage", "zero", r->zero);
  row(out, "ranks that hold its pieces", "zero_group", r->owners);
  fprintf(out, "<tr><th>plan proved to be a least one<td id=\"plan_proved\">%s\n",
          m->unproved ? "no" : "yes");
  fputs("</table>\n</section></div>\n", out);
}

// Colours that distinguish neighbours in the bar, on light and on dark.
static int hue(int row) { return (row * 137 + 213) % 360; }

static void bound_html(const Report *r, FILE *out) {
  fputs("<table>\n<thead><tr><th>of memory that is used again, alive at one time at most<td>size</thead>\n<tr><th>activations<td>", out);
  bytes(out, "bound-activations", (double)r->frame_bound);
  if (r->pipeline_bytes) {
    fputs("\n<tr><th>pipeline<td>", out);
    bytes(out, "bound-pipeline", (double)r->pipeline_bound);
  }
  fputs("\n</table>\n", out);
}

static void memory_html(const Report *r, FILE *out) {
  double all = r->total_bytes ? (double)r->total_bytes : 1;
  fputs("<h2>Memory of a rank</h2>\n", out);
  if (r->stages > 1) fprintf(out, "<p>Of stage %d, which needs the most.\n", r->stage);
  fputs("<div class=\"stack\" role=\"img\" aria-label=\"memory by use, as in the table\">", out);
  for (int i = 0; i < REPORT_MEMORY; i++) {
    ReportBytes b = report_bytes(r, i);
    if (b.sum || !b.bytes) continue;
    fprintf(out, "<i style=\"flex: %.4f; background: hsl(%d 45%% 55%%)\" title=\"%s\"></i>",
            1000 * (double)b.bytes / all, hue(i), b.label);
  }
  fputs("</div>\n<table>\n<thead><tr><th>use<td>size<td class=\"exact\">bytes<td>share</thead>\n",
        out);
  for (int i = 0; i < REPORT_MEMORY; i++) {
    ReportBytes b = report_bytes(r, i);
    fprintf(out, "<tr%s><th>", b.sum ? " class=\"sum\"" : "");
    if (!b.sum)
      fprintf(out, "<span class=\"key\" style=\"background: hsl(%d 45%% 55%%)\"></span>", hue(i));
    fprintf(out, "%s<td>", b.label);
    char id[64];
    snprintf(id, sizeof id, "memory-%s", b.key);
    bytes(out, id, (double)b.bytes);
    fputs("<td class=\"exact\">", out);
    html_digits(out, b.bytes);
    if (i >= REPORT_FILE) fputs("<td>\n", out); // no part of the memory
    else fprintf(out, "<td>%.1f%%\n", 100 * (double)b.bytes / all);
  }
  fputs("</table>\n", out);
  bound_html(r, out);
}

static void traffic_html(const Report *r, FILE *out) {
  fputs("<h2>Communication</h2>\n", out);
  if (!r->traffic.n) {
    fputs("<p>None: one rank sends nothing.\n", out);
    return;
  }
  fprintf(out, "<p>What a rank of stage %d sends in a step.\n", r->stage);
  double most = 1;
  bool merged = false;
  for (int i = 0; i < r->traffic.n; i++) most = fmax(most, r->traffic.row[i].bytes);
  fputs("<div class=\"wide\"><table id=\"communication\">\n"
        "<thead><tr><th>axis<th>what<td>times<td>size<td class=\"bar\"></thead>\n",
        out);
  for (int i = 0; i < r->traffic.n; i++) {
    const TrafficRow *w = &r->traffic.row[i];
    merged |= w->count == 0;
    fprintf(out, "<tr><th>%s<th>%s<td><data value=\"%.0f\">", w->axis, w->what, w->count);
    if (w->count > 0) html_digits(out, (int64_t)w->count);
    else fputs("*", out);
    fputs("</data><td>", out);
    bytes(out, "", w->bytes);
    fprintf(out, "<td class=\"bar\"><i style=\"width: %.1f%%\"></i>\n", 100 * w->bytes / most);
  }
  fputs("</table></div>\n", out);
  if (merged) fputs("<p class=\"soft\">* as often as the runtime's buckets make it.\n", out);
}

// ---- the schedule ----

// A page of more pieces of work than this would be slow to look at.
enum { MOST_PIECES = 6000 };

// The time up to which the timeline is drawn.
static int64_t drawn(const DtPipe *p) {
  int64_t n = 0;
  for (int s = 0; s < p->shape.stages; s++)
    for (int64_t i = 0; i < p->stage[s].n; i++) n += p->stage[s].op[i].work < DT_PIPE_COMPUTED;
  return n <= MOST_PIECES ? p->length : (int64_t)((double)p->length * MOST_PIECES / (double)n);
}

enum { WIDTH = 900, LANE = 26, LEFT = 62, AXIS = 30, TICKS = 10 };

static void stage_svg(const DtPipe *p, int s, int64_t until, FILE *out) {
  const double unit = (double)WIDTH / (double)until;
  fprintf(out, "<text x=\"0\" y=\"%d\">stage %d</text>\n", s * LANE + 16, s);
  for (int64_t i = 0; i < p->stage[s].n; i++) {
    const DtPipeOp *op = &p->stage[s].op[i];
    if (op->work >= DT_PIPE_COMPUTED || op->start >= until) continue;
    int64_t end = op->end < until ? op->end : until;
    char kind = "FBW"[op->work];
    fprintf(out, "<rect class=\"%c\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" rx=\"1.5\">",
            kind, LEFT + unit * (double)op->start, s * LANE,
            0.96 * unit * (double)(end - op->start), LANE - 4);
    fprintf(out,
            "<title>%s of microbatch %d, chunk %d, stage %d: %.1f%% to %.1f%% of the "
            "step</title></rect>\n",
            kind == 'F'   ? "forward"
            : kind == 'B' ? "backward"
                          : "gradients of weights",
            op->micro, op->chunk, s, 100 * (double)op->start / (double)p->length,
            100 * (double)end / (double)p->length);
  }
}

static void axis_svg(const DtPipe *p, int64_t until, FILE *out) {
  int y = p->shape.stages * LANE;
  for (int s = 0; s < p->shape.stages; s++)
    fprintf(out, "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
            s * LANE, WIDTH, LANE - 4);
  for (int i = 0; i <= TICKS; i++) {
    double x = LEFT + (double)WIDTH * i / TICKS,
           at = 100.0 * (double)until * i / TICKS / (double)p->length;
    fprintf(out, "<line x1=\"%.1f\" y1=\"0\" x2=\"%.1f\" y2=\"%d\"/>", x, x, y + 4);
    fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.*f%%</text>\n", x, y + 19,
            i == TICKS ? "end"
            : i        ? "middle"
                       : "start",
            until < p->length, at);
  }
}

static void schedule_html(const Report *r, const Module *m, const DtPipe *p, FILE *out) {
  double bubble = bubble_of(r);
  fputs("<h2>Schedule</h2>\n<p>", out);
  if (!p) {
    fprintf(out,
            "No pipeline: microbatches are run %s. Bubble: <data id=\"bubble\" "
            "value=\"%.6g\">%.1f%%</data>.\n",
            r->in_flight > 1 ? "two at a time, in turns" : "one after the other", bubble,
            100 * bubble);
    return;
  }
  html_text(out, m->schedule);
  fprintf(out,
          ", %d microbatches a rank. Time runs to the right, in parts of a step, by the compiler's "
          "estimate of "
          "costs. The stages are idle for <data id=\"bubble\" value=\"%.6g\">%.1f%%</data> of it: "
          "the bubble.\n",
          p->shape.micro, bubble, 100 * bubble);
  fputs("<p class=\"legend\"><span><i class=\"key F\"></i>forward</span><span><i class=\"key "
        "B\"></i>backward</span>",
        out);
  if (m->split) fputs("<span><i class=\"key W\"></i>gradients of weights</span>", out);
  fputs("\n", out);
  int64_t until = drawn(p);
  if (until < p->length)
    fprintf(out, "<p>Drawn is the first %.2f%% of the step.\n",
            100.0 * (double)until / (double)p->length);
  fprintf(out,
          "<div class=\"wide\"><svg id=\"timeline\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"the work of each stage over time\">\n",
          LEFT + WIDTH, p->shape.stages * LANE + AXIS);
  axis_svg(p, until, out);
  for (int s = 0; s < p->shape.stages; s++) stage_svg(p, s, until, out);
  fputs("</svg></div>\n", out);
}

static void params_html(const Report *r, const Module *m, FILE *out) {
  fputs("<h2>Parameters</h2>\n<div class=\"wide\"><table id=\"names\">\n"
        "<thead><tr><th>name<td>shape<td class=\"exact\">elements<td>share</thead>\n",
        out);
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    int64_t n = 1;
    fputs("<tr><th><code>", out);
    html_text(out, p->name);
    fputs("</code><td>", out);
    for (int d = 0; d < p->rank; n *= p->extent[d++])
      fprintf(out, "%s%" PRId64, d ? " × " : "", p->extent[d]);
    fputs("<td class=\"exact\">", out);
    html_digits(out, n);
    fprintf(out, "<td>%.1f%%\n", r->parameters ? 100 * (double)n / (double)r->parameters : 0.0);
  }
  fputs("</table></div>\n", out);
}

void report_html(const Report *r, const Plan *plan, const DtPipe *pipe, const char *input, const RunFiles *run,
                 FILE *out) {
  const Module *m = plan->m;
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
        out);
  html_text(out, m->name);
  fputs("</title>\n", out);
  fputs(head, out);
  fputs("<h1>", out);
  html_text(out, m->name);
  fputs("</h1>\n<p class=\"soft\">", out);
  html_text(out, input);
  fprintf(out, ", compiled by dtc for the target %s.\n", m->target->name);
  cards_html(r, out);
  if (run->log) report_curve_html(run->log, run->log_path, out);
  model_html(r, m, out);
  layout_html(r, m, out);
  memory_html(r, out);
  report_frames_html(plan, out);
  traffic_html(r, out);
  schedule_html(r, m, pipe, out);
  if (run->profile) report_profile_html(run->profile, plan, out);
  params_html(r, m, out);
  fputs("</html>\n", out);
}
