package bench

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
)

// curve is one line of a plot.
type curve struct {
	name  string
	color string
	at    func(ScaleStep) (float64, bool)
}

// plot is one coordinate system. The horizontal axis is logarithmic.
type plot struct {
	title       string
	curves      []curve
	logarithmic bool // the vertical axis too
}

// plots are what is drawn of an axis.
func plots() []plot {
	number := func(p *float64) (float64, bool) { return orZero(p), p != nil }
	mebi := func(bytes int64) (float64, bool) { return float64(bytes) / (1 << 20), bytes > 0 }
	return []plot{
		{"CPU time a job, µs", []curve{
			{"gq", "#1f77b4", func(s ScaleStep) (float64, bool) { return number(s.CPU) }},
			{"database server", "#d62728", func(s ScaleStep) (float64, bool) { return number(s.ServerCPU) }},
		}, false},
		{"jobs a second", []curve{
			{"rate", "#2ca02c", func(s ScaleStep) (float64, bool) { return s.JobsPerSecond, true }},
		}, false},
		{"MiB", []curve{
			{"live heap added", "#9467bd", func(s ScaleStep) (float64, bool) { return mebi(s.LiveHeap) }},
			{"resident", "#8c564b", func(s ScaleStep) (float64, bool) {
				if s.RSS == nil {
					return 0, false
				}
				return mebi(*s.RSS)
			}},
			{"on disk", "#7f7f7f", func(s ScaleStep) (float64, bool) {
				if s.DiskBytes == nil {
					return 0, false
				}
				return mebi(*s.DiskBytes)
			}},
		}, true},
	}
}

// Sizes of a drawing, in its own units.
const (
	plotWidth, plotHeight = 260.0, 200.0
	plotLeft, plotTop     = 60.0, 40.0
	plotStride            = plotLeft + plotWidth + 20
	drawingHeight         = plotTop + plotHeight + 50
)

// SVG draws the curves of an axis.
func (a ScaleAxis) SVG() []byte {
	var b bytes.Buffer
	all := plots()
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="11">`+"\n",
		plotStride*float64(len(all)), drawingHeight)
	b.WriteString(`<rect width="100%" height="100%" fill="white"/>` + "\n")
	for i, p := range all {
		fmt.Fprintf(&b, `<g transform="translate(%.0f %.0f)">`+"\n", plotLeft+plotStride*float64(i), plotTop)
		p.draw(&b, a)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func (p plot) draw(b *bytes.Buffer, a ScaleAxis) {
	least, most := math.Inf(1), 0.0
	for _, c := range p.curves {
		for _, s := range a.Steps {
			if v, ok := c.at(s); ok {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	low, high := 0.0, 1.0
	scale := func(v float64) float64 { return v }
	ticks := []float64{}
	if p.logarithmic {
		scale = func(v float64) float64 { return math.Log10(max(v, 1e-3)) }
		low, high = math.Floor(scale(min(least, most))), math.Ceil(scale(max(most, 1e-3)))
		high = max(high, low+1)
		for e := low; e <= high; e++ {
			ticks = append(ticks, math.Pow(10, e))
		}
	} else if most > 0 {
		stride := niceStride(most / 4)
		high = stride * math.Ceil(most/stride)
		for v := 0.0; v <= high; v += stride {
			ticks = append(ticks, v)
		}
	}
	y := func(v float64) float64 { return plotHeight * (1 - (scale(v)-low)/(high-low)) }
	first, last := math.Log10(float64(a.Steps[0].Size)), math.Log10(float64(a.Steps[len(a.Steps)-1].Size))
	x := func(size int) float64 {
		if last == first {
			return plotWidth / 2
		}
		return plotWidth * (math.Log10(float64(size)) - first) / (last - first)
	}
	fmt.Fprintf(b, `<text x="0" y="-24" font-weight="bold">%s</text>`+"\n", p.title)
	for _, v := range ticks {
		fmt.Fprintf(b, `<line x1="0" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#ddd"/><text x="-6" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotWidth, y(v), y(v), y(v)+4, strconv.FormatFloat(v, 'g', 6, 64))
	}
	for _, s := range a.Steps {
		fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle">%s</text>`+"\n", x(s.Size), plotHeight+16, abbreviated(s.Size))
	}
	fmt.Fprintf(b, `<text x="%.0f" y="%.0f" text-anchor="middle">%s</text>`+"\n", plotWidth/2, plotHeight+34, a.Axis)
	label := 0.0
	for _, c := range p.curves {
		var line, dots bytes.Buffer
		for _, s := range a.Steps {
			if v, ok := c.at(s); ok {
				fmt.Fprintf(&line, "%.1f,%.1f ", x(s.Size), y(v))
				fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`, x(s.Size), y(v), c.color)
			}
		}
		if line.Len() == 0 {
			continue
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>%s<text x="%.0f" y="-8" fill="%s">%s</text>`+"\n",
			bytes.TrimSpace(line.Bytes()), c.color, dots.String(), label, c.color, c.name)
		label += 90
	}
}

// niceStride returns the next of 1, 2 or 5 times a power of ten.
func niceStride(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// abbreviated writes a size as 10k or 1M.
func abbreviated(n int) string {
	switch {
	case n >= 1_000_000 && n%100_000 == 0:
		return strconv.FormatFloat(float64(n)/1e6, 'g', -1, 64) + "M"
	case n >= 1000 && n%100 == 0:
		return strconv.FormatFloat(float64(n)/1e3, 'g', -1, 64) + "k"
	default:
		return strconv.Itoa(n)
	}
}
