package compare

import (
	"errors"
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/gopherqueue/gq/internal/load"
)

// a chart is one plot: a line for each design.
type chart struct {
	name, title, x, y string
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
		{"throughput", "Requests by clients", "clients", "requests/s", base, clients(func(row Row) float64 { return row.PerSecond })},
		{"jobs", "Jobs done by clients", "clients", "jobs/s", base, clients(func(row Row) float64 { return row.Jobs.PerSecond })},
		{"end-to-end", "Submit to done by clients, median", "clients", "ms", base, clients(func(row Row) float64 { return row.Jobs.EndToEnd.P50 })},
	}
	for _, method := range load.MethodNames() {
		charts = append(charts, chart{
			"p99-" + method, method + " by clients, 99th percentile", "clients", "ms", base,
			clients(func(row Row) float64 { return row.Methods[method].Latency.P99 }),
		})
	}
	if len(r.Plan.Rates) > 1 {
		open := func(row Row) bool { return row.Cell.Rate > 0 }
		charts = append(charts, chart{"open-p99", "SubmitJob by offered load, 99th percentile", "requests/s offered", "ms", open, func(row Row) (float64, float64) {
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
			faults = append(faults, p.Save(6*vg.Inch, 4*vg.Inch, filepath.Join(dir, c.name+"."+kind)))
		}
	}
	return errors.Join(faults...)
}

func (r *Results) draw(c chart) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.title, c.x, c.y
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, name := range r.Plan.Designs {
		var points plotter.XYs
		for _, row := range r.Rows {
			if row.Design == name && c.rows(row) {
				x, y := c.at(row)
				points = append(points, plotter.XY{X: x, Y: y})
			}
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, fmt.Errorf("plot %s: %w", c.name, err)
		}
		line.Color = lineColors[i%len(lineColors)]
		line.Width = vg.Points(2)
		dots.Color = line.Color
		p.Add(line, dots)
		p.Legend.Add("design "+name, line)
	}
	return p, nil
}
