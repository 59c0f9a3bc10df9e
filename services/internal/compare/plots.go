package compare

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/gopherqueue/gq/services/internal/load"
)

// a chart is one plot: a line for each design.
type chart struct {
	name, title, x, y string
	least             float64 // smaller values are drawn as this on a logarithmic scale; 0 is a linear scale
	cells             []Cell
	at                func(Cell) float64 // position of a cell on the x axis
	metric            metric
}

func (r *Results) charts() []chart {
	closed, open := r.cells()
	base := slices.DeleteFunc(closed, func(c Cell) bool { return c.Work != r.Plan.Work[0] || c.Mix != r.Plan.Mixes[0] })
	clients := func(c Cell) float64 { return float64(c.Concurrency) }
	charts := []chart{
		{"throughput", "Requests by clients", "clients", "requests/s", 0, base, clients, requestsPerSecond},
		{"jobs", "Jobs done by clients", "clients", "jobs/s", 0, base, clients, jobsPerSecond},
		{"end-to-end", "Submit to done by clients, median", "clients", "ms (less than 1 is drawn as 0.5)", 0.5, base, clients, doneP50},
	}
	for _, method := range load.MethodNames() {
		charts = append(charts, chart{"p99-" + method, method + " by clients, 99th percentile", "clients", "ms", 0.01, base, clients, latency(method, 2, methodOf(method), p99)})
	}
	if len(open) > 1 {
		rate := func(c Cell) float64 { return c.Rate }
		charts = append(charts, chart{"open-p99", "SubmitJob by offered load, 99th percentile", "requests/s offered", "ms", 0.01, open, rate, submitP99})
	}
	return charts
}

// series is the points of a line with the range of each.
type series struct {
	plotter.XYs
	plotter.YErrors
}

func (r *Results) series(c chart, design string) (s series) {
	for _, cell := range c.cells {
		f := r.figure(design, cell, c.metric)
		if f.n == 0 {
			continue
		}
		y := max(f.median, c.least)
		s.XYs = append(s.XYs, plotter.XY{X: c.at(cell), Y: y})
		s.YErrors = append(s.YErrors, struct{ Low, High float64 }{y - max(f.low, c.least), max(f.high, c.least) - y})
	}
	return s
}

// lineColors are distinct for colour-blind readers too.
var lineColors = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff}, color.RGBA{0xcc, 0x79, 0xa7, 0xff},
}

func (r *Results) writePlots(dir string) error {
	var faults []error
	for _, c := range r.charts() {
		p, err := r.draw(c)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		for _, kind := range []string{"svg", "png"} {
			faults = append(faults, save(p, kind, filepath.Join(dir, c.name+"."+kind)))
		}
	}
	return errors.Join(faults...)
}

// save writes a plot on white, with a margin around it.
func save(p *plot.Plot, kind, name string) error {
	canvas, err := draw.NewFormattedCanvas(6.5*vg.Inch, 4.5*vg.Inch, kind)
	if err != nil {
		return fmt.Errorf("draw %s: %w", name, err)
	}
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Path())
	margin := vg.Points(10)
	p.Draw(draw.Crop(whole, margin, -margin, margin, -margin))
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}

func (r *Results) draw(c chart) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Title.Padding = vg.Points(8)
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, true, vg.Points(10), vg.Points(-6)
	p.Legend.ThumbnailWidth, p.Legend.Padding = vg.Points(24), vg.Points(2)
	p.Add(plotter.NewGrid())
	var xs, ys []float64
	for i, name := range r.Plan.Designs {
		points := r.series(c, name)
		if len(points.XYs) == 0 {
			continue
		}
		for i, xy := range points.XYs {
			xs, ys = append(xs, xy.X), append(ys, xy.Y-points.YErrors[i].Low, xy.Y+points.YErrors[i].High)
		}
		line, dots, err := plotter.NewLinePoints(points.XYs)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", c.name, err)
		}
		bars, err := plotter.NewYErrorBars(points)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", c.name, err)
		}
		line.Color = lineColors[i%len(lineColors)]
		line.Width = vg.Points(2)
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(3.5)
		bars.Color, bars.Width = line.Color, vg.Points(1.5)
		p.Add(line, dots, bars)
		p.Legend.Add("design "+name, line, dots)
	}
	scale(p, c, xs, ys)
	return p, nil
}

// scale sets the axes: ticks at the points, and room for the legend above them. Clients
// and rates grow by factors, so their scale is logarithmic.
func scale(p *plot.Plot, c chart, xs, ys []float64) {
	slices.Sort(xs)
	xs = slices.Compact(xs)
	var ticks plot.ConstantTicks
	for i, x := range xs {
		if len(xs) > 8 && i%2 > 0 {
			continue // labels would overlap
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'f', -1, 64)})
	}
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks
	p.X.Min, p.X.Max = xs[0]/1.15, xs[len(xs)-1]*1.15
	p.Y.Min, p.Y.Max = 0, 1.3*max(slices.Max(ys), 1)
	if c.least > 0 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Y.Min, p.Y.Max = slices.Min(ys)/2, 8*slices.Max(ys)
	}
}
