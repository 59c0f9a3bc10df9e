package bench

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
)

// smallScale returns settings that finish quickly.
func smallScale() ScaleSettings {
	s := DefaultScale()
	s.Max = map[Axis]int{AxisBacklog: 1000, AxisHistory: 1000, AxisWorkers: 100, AxisQueues: 30, AxisKeys: 30, AxisGraph: 12}
	s.Callers, s.Batch, s.Duration = 2, 10, 20*time.Millisecond
	return s
}

func TestScale(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			var steps []string
			s := smallScale()
			s.Progress = func(done, total int, what string) { steps = append(steps, fmt.Sprintf("%d/%d %s", done, total, what)) }
			r, err := Scale(t.Context(), place(t), s)
			if err != nil {
				t.Fatal(err)
			}
			var sizes []string
			for _, a := range r.Axes {
				for _, step := range a.Steps {
					sizes = append(sizes, fmt.Sprintf("%s %d", a.Axis, step.Size))
					if step.Jobs == 0 || step.JobsPerSecond <= 0 || step.CPU == nil || *step.CPU <= 0 {
						t.Errorf("%s %d: %+v, want jobs, a rate and CPU time", a.Axis, step.Size, step)
					}
				}
				if _, err := checkXML(a.SVG()); err != nil {
					t.Errorf("%s: the drawing is not XML: %v", a.Axis, err)
				}
			}
			want := []string{
				"backlog 1000", "history 1000", "workers 1", "workers 10", "workers 100",
				"queues 1", "queues 10", "queues 30", "keys 1", "keys 10", "keys 30", "graph 1", "graph 10", "graph 12",
			}
			if !slices.Equal(sizes, want) {
				t.Errorf("measured %q, want %q", sizes, want)
			}
			if len(steps) != len(want) || steps[0] != "0/14 backlog, 1000" {
				t.Errorf("progress %q", steps)
			}
		})
	}
}

func checkXML(text []byte) (elements int, err error) {
	d := xml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return elements, nil
		}
		if err != nil {
			return elements, err
		}
		if _, ok := token.(xml.StartElement); ok {
			elements++
		}
	}
}

func TestScaleDrawsEveryPoint(t *testing.T) {
	a := ScaleAxis{Axis: AxisBacklog, Steps: []ScaleStep{
		{Size: 1000, JobsPerSecond: 90_000, CPU: new(17.5), LiveHeap: 1 << 20},
		{Size: 10_000, JobsPerSecond: 80_000, CPU: new(18.5), LiveHeap: 2 << 20},
	}}
	text := a.SVG()
	if n := bytes.Count(text, []byte("<circle")); n != 6 {
		t.Errorf("%d points, want two of CPU time, rate and heap each:\n%s", n, text)
	}
	if bytes.Contains(text, []byte("database server")) {
		t.Error("a curve without points is drawn")
	}
}

func TestScaleValidates(t *testing.T) {
	s := smallScale()
	s.Axes, s.Max, s.Batch, s.Duration = []Axis{"nonsense"}, map[Axis]int{AxisGraph: 1_000_000, "none": 1}, 0, 0
	_, err := Scale(t.Context(), memory{}, s)
	var fields []string
	for _, f := range errs.FaultsOf(err) {
		fields = append(fields, f.Field)
	}
	if want := []string{"axis", "max", "max", "batch", "duration"}; !slices.Equal(fields, want) {
		t.Errorf("faults of %q, want %q: %v", fields, want, err)
	}
}

func TestScaleFindsALostJob(t *testing.T) {
	for name, change := range map[string]func(store.Store) store.Store{
		"Loses":            func(s store.Store) store.Store { return losing{s} },
		"Miscounts":        func(s store.Store) store.Store { return miscounting{s} },
		"CompletesNothing": func(s store.Store) store.Store { return lazy{s} },
	} {
		t.Run(name, func(t *testing.T) {
			s := smallScale()
			s.Axes = []Axis{AxisBacklog, AxisHistory}
			if _, err := Scale(t.Context(), memory{change}, s); !errors.Is(err, errWrong) {
				t.Errorf("error %v, want %v", err, errWrong)
			}
		})
	}
}

func TestScaleStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := smallScale()
	s.Progress = func(done, _ int, _ string) {
		if done == 1 {
			cancel()
		}
	}
	if _, err := Scale(ctx, memory{}, s); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestServerTime(t *testing.T) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		t.Skip("no /proc")
	}
	name, parent, used, ok := parseFamily(stat)
	if !ok || parent != os.Getppid() || used < 0 {
		t.Fatalf("%q %d %v %v, want parent %d", name, parent, used, ok, os.Getppid())
	}
	if _, ok := ServerTime(os.Getpid(), name); !ok {
		t.Error("the time of this process's family is not known")
	}
	if _, ok := ServerTime(os.Getpid(), "postgres"); ok {
		t.Error("a process of another name was taken for the server")
	}
	if _, _, _, ok := parseFamily([]byte("12 (x")); ok {
		t.Error("nonsense was parsed")
	}
}
