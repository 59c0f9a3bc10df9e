package dashboard

import (
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

var noon = time.Date(2026, time.March, 31, 12, 0, 0, 0, time.UTC)

// minutes returns points of one minute that end at noon.
func minutes(n int, fill func(i int, p *gq.HistoryPoint)) []gq.HistoryPoint {
	points := make([]gq.HistoryPoint, n)
	for i := range points {
		points[i].Time = noon.Add(time.Duration(i-n+1) * time.Minute)
		fill(i, &points[i])
	}
	return points
}

func TestHistoryIsDrawn(t *testing.T) {
	points := minutes(60, func(i int, p *gq.HistoryPoint) {
		if i == 10 || i == 59 {
			p.Submitted, p.Started, p.Completed, p.Failed, p.DeadLettered = 100, 90, 80, 2, 1
			p.Wait = gq.Latency{Count: 90, P50: 20 * time.Millisecond, P99: 2 * time.Second}
		}
	})
	view := drawHistory(reachOf("hour"), points, noon.Add(30*time.Second))
	if len(view.Charts) != 3 || len(view.Points) != 2 || !view.Points[0].Time.After(view.Points[1].Time) {
		t.Fatalf("%d charts and %d points", len(view.Charts), len(view.Points))
	}
	jobs, wait, run := view.Charts[0], view.Charts[1], view.Charts[2]
	if want := "In the last hour 200 jobs were submitted, 160 completed and 6 failed or became dead letters. At most 83 ended within a minute."; jobs.Text != want {
		t.Errorf("it says %q", jobs.Text)
	}
	if jobs.Marks[0].Total != "160" || jobs.Marks[1].Total != "6" || jobs.Marks[2].Total != "200" || jobs.Y[0] != "100" {
		t.Errorf("the legend is %+v, the axis %v", jobs.Marks, jobs.Y)
	}
	if wait.Marks[0].Total != "20 ms" || wait.Marks[1].Total != "2 s" || !strings.Contains(wait.Text, "99th percentiles between 2 s and 2 s") {
		t.Errorf("waits are %+v, %q", wait.Marks, wait.Text)
	}
	if !run.Empty() || run.Text != "No job has a figure in this time." {
		t.Errorf("a chart without data says %q", run.Text)
	}
	if jobs.X != [3]string{"11:01", "11:30", "now"} {
		t.Errorf("the times are %v", jobs.X)
	}
}

func TestHistoryOfEveryReach(t *testing.T) {
	for _, r := range reaches {
		n := int(r.Length / r.Step)
		points := make([]gq.HistoryPoint, n)
		for i := range points {
			points[i] = gq.HistoryPoint{Time: noon.Add(time.Duration(i-n+1) * r.Step), Completed: int64(i), Run: gq.Latency{Count: 1, P50: time.Duration(i) * time.Second, P99: time.Duration(i) * time.Hour}}
		}
		view := drawHistory(r, points, noon)
		if n > 200 || len(view.Points) != n-1 { // the first is zero
			t.Errorf("%s has %d points and %d rows", r.Name, n, len(view.Points))
		}
		if got := strings.Count(view.Charts[0].Marks[0].Path, "M"); got != n-1 {
			t.Errorf("%s has %d bars, want %d", r.Name, got, n-1)
		}
		for _, empty := range [][]gq.HistoryPoint{nil, make([]gq.HistoryPoint, n)} {
			for _, c := range drawHistory(r, empty, noon).Charts {
				if !c.Empty() {
					t.Errorf("%s without jobs draws %+v", r.Name, c.Marks)
				}
			}
		}
	}
	if reachOf("century").Name != "hour" {
		t.Error("an unknown reach is not the default")
	}
}

func TestRatesOfMinutes(t *testing.T) {
	// Ten minutes ago 600 jobs, and 30 in the minute that began 30 seconds ago.
	points := minutes(60, func(i int, p *gq.HistoryPoint) {
		switch i {
		case 49:
			p.Submitted, p.Started, p.Completed = 600, 600, 600
		case 59:
			p.Started, p.Completed, p.Retried, p.DeadLettered = 30, 15, 10, 5
		}
	})
	now := noon.Add(30 * time.Second)
	five := rateOf("5", points, now.Add(-5*time.Minute), now)
	if got, want := five.Started, 30/330.0; got != want || five.Failures != 0.5 || !five.Ended {
		t.Errorf("the last five minutes are %+v, want %v starts a second", five, want)
	}
	hour := rateOf("60", points, now.Add(-time.Hour), now)
	if got, want := hour.Submitted, 600/(59*60+30.0); got != want || hour.Failures != 15/630.0 {
		t.Errorf("the last hour is %+v, want %v", hour, want)
	}
	if none := rateOf("5", nil, now.Add(-5*time.Minute), now); none.Ended || none.Started != 0 {
		t.Errorf("nothing is %+v", none)
	}
}

func TestPaceComesFromTheNewestMinutes(t *testing.T) {
	now := noon.Add(30 * time.Second)
	for name, test := range map[string]struct {
		fill func(i int, p *gq.HistoryPoint)
		want pace
	}{
		"nothing":      {func(int, *gq.HistoryPoint) {}, pace{}},
		"only waiting": {func(_ int, p *gq.HistoryPoint) { p.Submitted = 5 }, pace{}},
		"steady":       {func(_ int, p *gq.HistoryPoint) { p.Started = 60 }, pace{Starts: 300 / 270.0, Span: 270 * time.Second}}, // the newest five
		"slow":         {func(_ int, p *gq.HistoryPoint) { p.Started = 1 }, pace{Starts: 20 / 1170.0, Span: 1170 * time.Second}},
		"one just now": {func(i int, p *gq.HistoryPoint) {
			if i == 59 {
				p.Started = 3
			}
		}, pace{Starts: 0.1, Span: 30 * time.Second}},
		"one long ago": {func(i int, p *gq.HistoryPoint) {
			if i == 0 {
				p.Started = 357
			}
		}, pace{Starts: 357 / (59*60 + 30.0), Span: 59*time.Minute + 30*time.Second}},
	} {
		if got := paceOf(minutes(60, test.fill), now); got != test.want {
			t.Errorf("%s: the pace is %+v, want %+v", name, got, test.want)
		}
	}
}
