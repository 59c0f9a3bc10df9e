package observe

import (
	"io"
	"math"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// counter only grows.
type counter struct{ n atomic.Uint64 }

func (c *counter) add() { c.n.Add(1) }

// histogram counts values by size.
type histogram struct {
	bounds []float64 // ascending; what is larger than all counts too
	counts []atomic.Uint64
	sum    atomic.Uint64 // bits of a float64
}

// seconds are the bounds for durations, sizes those for batches.
var (
	seconds = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
	sizes   = []float64{1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 10_000}
)

func newHistogram(bounds []float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]atomic.Uint64, len(bounds)+1)}
}

func (h *histogram) observe(v float64) {
	h.counts[sort.SearchFloat64s(h.bounds, v)].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+v)) {
			return
		}
	}
}

func (h *histogram) lasting(d time.Duration) { h.observe(d.Seconds()) }

// page writes metrics in the text format of Prometheus, version 0.0.4.
type page struct {
	buffer []byte
	out    io.Writer
	err    error
}

// flushAt keeps the memory of a page small.
const flushAt = 64 << 10

func (p *page) flush(least int) {
	if len(p.buffer) < least || p.err != nil {
		return
	}
	_, p.err = p.out.Write(p.buffer)
	p.buffer = p.buffer[:0]
}

// head introduces a metric.
func (p *page) head(name, kind, help string) {
	p.buffer = append(p.buffer, "# HELP "+name+" "+help+"\n# TYPE "+name+" "+kind+"\n"...)
}

// label is a label with its value, escaped.
func label(name, value string) string {
	return name + `="` + escaper.Replace(value) + `"`
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// line is one value.
func (p *page) line(name, labels string, value float64) {
	b := append(p.buffer, name...)
	if labels != "" {
		b = append(b, '{')
		b = append(b, labels...)
		b = append(b, '}')
	}
	b = append(b, ' ')
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		b = strconv.AppendInt(b, int64(value), 10)
	} else {
		b = strconv.AppendFloat(b, value, 'g', -1, 64)
	}
	p.buffer = append(b, '\n')
	p.flush(flushAt)
}

// ofQueue is one value of a queue: most lines are that, so that nothing is made
// for it but the line itself.
func (p *page) ofQueue(before, queue, after string, value int64) {
	b := append(p.buffer, before...)
	if strings.ContainsAny(queue, "\\\"\n") {
		queue = escaper.Replace(queue)
	}
	b = append(b, queue...)
	b = append(b, after...)
	b = strconv.AppendInt(b, value, 10)
	p.buffer = append(b, '\n')
	p.flush(flushAt)
}

// single is a metric with one value.
func (p *page) single(name, kind, help string, value float64) {
	p.head(name, kind, help)
	p.line(name, "", value)
}

// distribution writes a histogram with labels that may be empty.
func (p *page) distribution(name, labels string, h *histogram) {
	join := ""
	if labels != "" {
		join = ","
	}
	total := uint64(0)
	for i := range h.counts {
		total += h.counts[i].Load()
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = strconv.FormatFloat(h.bounds[i], 'g', -1, 64)
		}
		p.line(name+"_bucket", labels+join+`le="`+bound+`"`, float64(total))
	}
	p.line(name+"_sum", labels, math.Float64frombits(h.sum.Load()))
	p.line(name+"_count", labels, float64(total))
}
