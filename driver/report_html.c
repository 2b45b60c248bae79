// --report html: one page that needs nothing else. Every number of --report json is in it, in an
// element whose id is the number's name there; and a pipeline's timeline, drawn.
#include "driver/report.h"

#include <inttypes.h>

static void escaped(FILE *out, const char *text) {
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (strchr("<>&\"'", c) || c < ' ' || c == 127)
      fprintf(out, "&#%d;", c < ' ' || c == 127 ? 0xfffd : c);
    else putc(c, out);
  }
}

// Thousands are set apart.
static void number(FILE *out, int64_t n) {
  char digit[32];
  int all = snprintf(digit, sizeof digit, "%" PRId64, n);
  for (int i = 0; i < all; i++) {
    if (i && (all - i) % 3 == 0 && digit[i - 1] != '-') putc(',', out);
    putc(digit[i], out);
  }
}

static void row(FILE *out, const char *label, const char *id, int64_t n) {
  fprintf(out, "<tr><th>%s<td id=\"%s\">", label, id);
  number(out, n);
  fputs("\n", out);
}

static const char head[] =
    "<style>\n"
    ":root { color-scheme: light dark; --bar: #4878a8; --faint: #8884 }\n"
    "body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 "
    "1rem }\n"
    "table { border-collapse: collapse } th { text-align: left; font-weight: normal }\n"
    "th, td { padding: .1rem .8rem .1rem 0; border-bottom: 1px solid var(--faint) }\n"
    "td { text-align: right; font-variant-numeric: tabular-nums } td.left { text-align: left }\n"
    "thead th { font-weight: bold } .bar { width: 16rem }\n"
    ".bar i { display: block; height: .7rem; background: var(--bar) }\n"
    ".wide { overflow-x: auto } svg text { font: 11px sans-serif; fill: currentColor }\n"
    ".F { fill: #4878a8 } .B { fill: #c07840 } .W { fill: #6a9a58 } .idle { fill: var(--faint) }\n"
    "</style>\n";

static void model_html(const Report *r, const Module *m, FILE *out) {
  fputs("<h2>Model</h2>\n<table>\n", out);
  fprintf(out, "<tr><th>precision<td id=\"precision\">%s\n", dtype_name[m->compute]);
  row(out, "parameters", "parameters", r->parameters);
  row(out, "samples in a batch", "batch", m->train.batch);
  row(out, "in microbatches of", "microbatch", m->train.microbatch);
  row(out, "of which a step has", "microbatches", r->microbatches);
  row(out, "of which a rank runs at once", "in_flight", r->in_flight);
  row(out, "kernels a microbatch", "kernels", r->kernels);
  fprintf(out,
          "<tr><th>FLOPs a microbatch, of products and attention<td id=\"matrix_flops\">%.17g\n"
          "<tr><th>of all else<td id=\"other_flops\">%.17g\n</table>\n",
          r->matrix_flops, r->other_flops);
}

static void layout_html(const Report *r, const Module *m, FILE *out) {
  fputs("<h2>Layout</h2>\n<table>\n", out);
  for (uint32_t a = 0; a < m->axis.n; a++)
    row(out, m->axis.at[a].name, m->axis.at[a].name, m->axis.at[a].size);
  row(out, "pipeline stages", "stages", r->stages);
  row(out, "data-parallel ranks", "ranks", r->ranks);
  row(out, "ZeRO stage", "zero", r->zero);
  row(out, "ranks that share out its pieces", "zero_group", r->owners);
  fprintf(out, "<tr><th>plan proved to be a least one<td id=\"plan_proved\">%s\n",
          m->unproved ? "no" : "yes");
  fputs("</table>\n", out);
}

static void memory_html(const Report *r, FILE *out) {
  fputs("<h2>Memory of a rank</h2>\n", out);
  if (r->stages > 1) fprintf(out, "<p>Of stage %d, which needs most.\n", r->stage);
  fputs("<table>\n<thead><tr><th>what<td>bytes<td>MiB<td class=\"bar\"></thead>\n", out);
  for (int i = 0; i < REPORT_MEMORY; i++) {
    ReportBytes b = report_bytes(r, i);
    fprintf(out, "<tr><th>%s<td id=\"memory-%s\">", b.label, b.key);
    number(out, b.bytes);
    fprintf(out, "<td>%.1f<td class=\"bar\"><i style=\"width: %.1f%%\"></i>\n",
            (double)b.bytes / (1 << 20),
            r->total_bytes ? 100.0 * (double)b.bytes / (double)r->total_bytes : 0.0);
  }
  fputs("</table>\n", out);
}

static void traffic_html(const Report *r, FILE *out) {
  fputs("<h2>Communication</h2>\n", out);
  if (!r->traffic.n) {
    fputs("<p>None.\n", out);
    return;
  }
  fprintf(out,
          "<p>What a rank of stage %d sends in a step. A count of 0: as many as the runtime puts "
          "together.\n",
          r->stage);
  fputs("<table "
        "id=\"communication\">\n<thead><tr><th>axis<th>what<td>count<td>bytes<td>MiB</thead>\n",
        out);
  for (int i = 0; i < r->traffic.n; i++) {
    const TrafficRow *w = &r->traffic.row[i];
    fprintf(out, "<tr><th>%s<th>%s<td>%.0f<td>%.0f<td>%.1f\n", w->axis, w->what, w->count, w->bytes,
            w->bytes / (1 << 20));
  }
  fputs("</table>\n", out);
}

// A page of more pieces of work than this would be slow to look at.
enum { MOST_PIECES = 6000 };

// The time up to which the timeline is drawn.
static int64_t drawn(const DtPipe *p) {
  int64_t n = 0;
  for (int s = 0; s < p->shape.stages; s++)
    for (int64_t i = 0; i < p->stage[s].n; i++) n += p->stage[s].op[i].work < DT_PIPE_COMPUTED;
  return n <= MOST_PIECES ? p->length : (int64_t)((double)p->length * MOST_PIECES / (double)n);
}

enum { WIDTH = 900, LANE = 22, LEFT = 60 };

static void stage_svg(const DtPipe *p, int s, int64_t until, FILE *out) {
  const double unit = (double)WIDTH / (double)until;
  fprintf(out, "<text x=\"0\" y=\"%d\">stage %d</text>", s * LANE + 14, s);
  fprintf(out, "<rect class=\"idle\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>\n", LEFT,
          s * LANE, WIDTH, LANE - 4);
  for (int64_t i = 0; i < p->stage[s].n; i++) {
    const DtPipeOp *op = &p->stage[s].op[i];
    if (op->work >= DT_PIPE_COMPUTED || op->start >= until) continue;
    int64_t end = op->end < until ? op->end : until;
    char kind = "FBW"[op->work];
    fprintf(out, "<rect class=\"%c\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\">", kind,
            LEFT + unit * (double)op->start, s * LANE, 0.96 * unit * (double)(end - op->start),
            LANE - 4);
    fprintf(out, "<title>%c of microbatch %d, chunk %d, stage %d</title></rect>\n", kind, op->micro,
            op->chunk, s);
  }
}

static void schedule_html(const Report *r, const Module *m, const DtPipe *p, FILE *out) {
  double bubble = r->bubble.all ? (double)r->bubble.idle / (double)r->bubble.all : 0.0;
  fputs("<h2>Schedule</h2>\n", out);
  if (!p) {
    fprintf(out,
            "<p>No pipeline: microbatches are run %s. Bubble: <span "
            "id=\"bubble\">%.6g</span>\n",
            r->in_flight > 1 ? "two at a time, in turns" : "one after the other", bubble);
    return;
  }
  fputs("<p>", out);
  escaped(out, m->schedule);
  fprintf(out,
          ", %d microbatches a rank, by the compiler's estimate of costs. Idle part of all stages' "
          "time, the bubble: "
          "<span id=\"bubble\">%.6g</span>. Blue: forward; orange: backward; green: gradients of "
          "weights.\n",
          p->shape.micro, bubble);
  int64_t until = drawn(p);
  if (until < p->length)
    fprintf(out, "Drawn is the first %.2f%% of the step.\n",
            100.0 * (double)until / (double)p->length);
  fprintf(out,
          "<div class=\"wide\"><svg id=\"timeline\" width=\"%d\" height=\"%d\" role=\"img\">\n",
          LEFT + WIDTH, p->shape.stages * LANE);
  for (int s = 0; s < p->shape.stages; s++) stage_svg(p, s, until, out);
  fputs("</svg></div>\n", out);
}

static void params_html(const Module *m, FILE *out) {
  fputs("<h2>Parameters</h2>\n<table "
        "id=\"names\">\n<thead><tr><th>name<td>shape<td>elements</thead>\n",
        out);
  for (uint32_t i = 0; i < m->param.n; i++) {
    const Param *p = &m->param.at[i];
    int64_t n = 1;
    fputs("<tr><th>", out);
    escaped(out, p->name);
    fputs("<td>", out);
    for (int d = 0; d < p->rank; n *= p->extent[d++])
      fprintf(out, "%s%" PRId64, d ? " × " : "", p->extent[d]);
    fputs("<td>", out);
    number(out, n);
    fputs("\n", out);
  }
  fputs("</table>\n", out);
}

void report_html(const Report *r, const Module *m, const DtPipe *pipe, const char *input,
                 FILE *out) {
  fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n<title>",
        out);
  escaped(out, m->name);
  fputs("</title>\n", out);
  fputs(head, out);
  fputs("<h1>", out);
  escaped(out, m->name);
  fputs("</h1>\n<p>", out);
  escaped(out, input);
  fputs(", compiled for the CPU.\n", out);
  model_html(r, m, out);
  layout_html(r, m, out);
  memory_html(r, out);
  traffic_html(r, out);
  schedule_html(r, m, pipe, out);
  params_html(m, out);
  fputs("</html>\n", out);
}
