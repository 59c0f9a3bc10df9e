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

	"github.com/gopherqueue/gq/internal/load"
)

// a chart is one plot: a line for each design.
type chart struct {
	name, title, x, y string
	least             float64 // on a logarithmic scale smaller values are drawn as this; 0 is a linear scale
	rows              func(Row) bool
	at                func(Row) (x, y float64)
}

func (r *Results) charts() []chart {
	base := func(row Row) bool {
		return row.Cell.Rate == 0 && row.Cell.Work == r.Plan.Work[0] && row.Cell.Mix == r.Plan.Mixes[0]
	}
	clients := func(y func(Row) float64) func(Row) (float64, float64) {
		return func(row Row) (float64, float64) { return float64(row.Cell.Concurrency), y(row) }
	}
	charts := []chart{
		{"throughput", "Requests by clients", "clients", "requests/s", 0, base, clients(func(row Row) float64 { return row.PerSecond })},
		{"jobs", "Jobs done by clients", "clients", "jobs/s", 0, base, clients(func(row Row) float64 { return row.Jobs.PerSecond })},
		{"end-to-end", "Submit to done by clients, median", "clients", "ms (less than 1 is drawn as 0.5)", 0.5, base, clients(func(row Row) float64 { return row.Jobs.EndToEnd.P50 })},
	}
	for _, method := range load.MethodNames() {
		charts = append(charts, chart{
			"p99-" + method, method + " by clients, 99th percentile", "clients", "ms", 0.01, base,
			clients(func(row Row) float64 { return row.Methods[method].Latency.P99 }),
		})
	}
	if len(r.Plan.Rates) > 1 {
		open := func(row Row) bool { return row.Cell.Rate > 0 }
		charts = append(charts, chart{"open-p99", "SubmitJob by offered load, 99th percentile", "requests/s offered", "ms", 0.01, open, func(row Row) (float64, float64) {
			return row.Cell.Rate, row.Methods[load.Submit.String()].Latency.P99
		}})
	}
	return charts
}

// lineColors are told apart by the colour-blind too.
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
		var points plotter.XYs
		for _, row := range r.Rows {
			if row.Design == name && c.rows(row) {
				x, y := c.at(row)
				points = append(points, plotter.XY{X: x, Y: max(y, c.least)})
				xs, ys = append(xs, x), append(ys, max(y, c.least))
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", c.name, err)
		}
		line.Color = lineColors[i%len(lineColors)]
		line.Width = vg.Points(2)
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(3.5)
		p.Add(line, dots)
		p.Legend.Add("design "+name, line, dots)
	}
	scale(p, c, xs, ys)
	return p, nil
}

// scale sets the axes: ticks below the points, and room for the legend above
// them. Clients and rates grow by factors, so that is how they are drawn.
func scale(p *plot.Plot, c chart, xs, ys []float64) {
	slices.Sort(xs)
	xs = slices.Compact(xs)
	var ticks plot.ConstantTicks
	for _, x := range xs {
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
