package compare_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/internal/compare"
)

// planted is a design in this process that completes jobs at once, with a planted
// fault.
type planted struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
	fault string

	server *grpc.Server
	addr   string

	mu   sync.Mutex // guards what follows
	jobs map[string]time.Time
	n    int
}

func (p *planted) Addresses() []string        { return []string{p.addr} }
func (p *planted) Memory() map[string]float64 { return nil }
func (p *planted) Stop() error                { p.server.Stop(); return nil }

func (p *planted) SubmitJob(context.Context, *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	var b [16]byte
	_, _ = rand.Read(b[:])
	id := fmt.Sprintf("%x-%x-4%x-8%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	id = id[:14] + "4" + id[16:20] + "8" + id[22:]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n++
	if p.fault != "drops" || p.n%2 == 0 {
		p.jobs[id] = time.Now()
	}
	return &publicpb.SubmitJobResponse{JobId: id, InitialStatus: publicpb.JobStatus_QUEUED, AcceptedAtMs: time.Now().UnixMilli()}, nil
}

func (p *planted) at(id string) (time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.jobs[id]
	if !ok {
		return at, status.Error(codes.NotFound, "unknown job")
	}
	return at, nil
}

func (p *planted) GetJobStatus(_ context.Context, r *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	at, err := p.at(r.GetJobId())
	if err != nil {
		return nil, err
	}
	ms := at.UnixMilli()
	if p.fault == "stuck" {
		return &publicpb.GetJobStatusResponse{JobId: r.GetJobId(), Status: publicpb.JobStatus_RUNNING, CreatedAtMs: ms, StartedAtMs: ms}, nil
	}
	return &publicpb.GetJobStatusResponse{JobId: r.GetJobId(), Status: publicpb.JobStatus_DONE, CreatedAtMs: ms, StartedAtMs: ms, FinishedAtMs: ms + 1}, nil
}

func (p *planted) GetJobResult(_ context.Context, r *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	if _, err := p.at(r.GetJobId()); err != nil {
		return nil, err
	}
	output := taskwork.Output("load", 256)
	if p.fault == "wrong" {
		output[7]++
	}
	return &publicpb.GetJobResultResponse{JobId: r.GetJobId(), ResultReady: true, TerminalStatus: publicpb.JobStatus_DONE, OutputBytes: output, Checksum: taskwork.Checksum(output)}, nil
}

// plant launches designs in this process; a design's name selects its fault.
func plant(t *testing.T) compare.Launcher {
	t.Helper()
	return func(ctx context.Context, d compare.Design) (compare.System, error) {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		p := &planted{fault: d.Name, server: grpc.NewServer(), addr: listener.Addr().String(), jobs: make(map[string]time.Time)}
		publicpb.RegisterTaskQueuePublicServiceServer(p.server, p)
		go p.server.Serve(listener) //nolint:errcheck // ends by Stop
		return p, nil
	}
}

// A comparison shows the faults of a design, however good its numbers are.
func TestPlantedFaultsShow(t *testing.T) {
	plan := compare.QuickPlan()
	plan.Concurrency, plan.Work, plan.Rate, plan.Floor, plan.Repetitions = []int{4}, []time.Duration{0}, 0, 0, 2
	plan.Warmup, plan.Duration = 20*time.Millisecond, 200*time.Millisecond
	var designs []compare.Design
	for _, name := range []string{"honest", "drops", "wrong"} {
		designs = append(designs, compare.Design{Name: name, Slots: plan.Slots})
	}
	dir := t.TempDir()
	var r *compare.Results
	for ; ; plan.Duration *= 4 { // retry while the machine stalls
		var err error
		r, err = compare.Run(t.Context(), plan, designs, plant(t), compare.Watch{Say: t.Logf, Raw: filepath.Join(dir, "raw")})
		if err != nil {
			t.Fatal(err)
		}
		least := 1 << 30
		for _, row := range r.Rows {
			least = min(least, row.Jobs.Window.Accepted)
		}
		if least > 3 || plan.Duration > 15*time.Second {
			break
		}
	}
	var order []string
	for _, row := range r.Rows {
		order = append(order, row.Design)
		if row.Correct() != (row.Design == "honest") {
			t.Errorf("%s is correct: %v, %+v, %v", row.Design, row.Correct(), row.Jobs, row.Examples)
		}
		if e := row.Jobs.EndToEnd; row.Design == "drops" && (row.Jobs.Window.Lost == 0 || !e.Bound(e.P99)) {
			t.Errorf("lost jobs do not show in %+v, %+v", row.Jobs.Window, e)
		}
	}
	if got := strings.Join(order, " "); got != "honest drops wrong drops wrong honest" {
		t.Errorf("the designs did not take turns: %s", got)
	}
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Design drops is not correct: 0 wrong answers", "Design wrong is not correct", "has 256 wrong bytes", "Its speed is not compared"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
	for _, not := range []string{"Design honest is not correct", "higher than"} {
		if strings.Contains(string(report), not) {
			t.Errorf("the report says %q", not)
		}
	}
	if len(r.Rows[0].Samples) > 0 || len(r.Rows[0].JobSamples) > 0 {
		t.Error("raw data is kept in memory")
	}
	for _, want := range []string{"drops-closed-4-work0ms-mix1-1-1-2-jobs.csv.gz", "honest-closed-4-work0ms-mix1-1-1-1-requests.csv.gz"} {
		if info, err := os.Stat(filepath.Join(dir, "raw", want)); err != nil || info.Size() < 50 {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// Rates increase until a design fails, up to the plan's maximum.
func TestOpenLoopsGoUp(t *testing.T) {
	plan := compare.QuickPlan()
	plan.Concurrency, plan.Work, plan.Floor = []int{1}, []time.Duration{0}, 0
	plan.Rate, plan.MaxRate, plan.Warmup, plan.Duration = 2000, 2000, 20*time.Millisecond, 300*time.Millisecond
	plan.Limit = time.Nanosecond // no design sustains that
	designs := []compare.Design{{Name: "honest", Slots: plan.Slots}}
	r, err := compare.Run(t.Context(), plan, designs, plant(t), compare.Watch{Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Limits) != 1 || r.Limits[0].Kept != 0 || r.Limits[0].NotKept == 0 || r.Limits[0].Why == "" {
		t.Errorf("limits %+v", r.Limits)
	}
	// A busy machine may sustain less than an idle one: the run must offer the rates and
	// report the limit that follow from what it measured.
	plan.Rate, plan.MaxRate, plan.Limit, plan.Duration = 20, 160, time.Minute, time.Second
	r, err = compare.Run(t.Context(), plan, designs, plant(t), compare.Watch{Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	var rates []float64
	for _, row := range r.Rows {
		if row.Cell.Rate > 0 {
			rates = append(rates, row.Cell.Rate)
		}
	}
	limit, want, err := plan.Replay(r.Rows)
	limit.Design, limit.Repetition = "honest", 1
	if err != nil || !slices.Equal(rates, want) || !slices.Equal(r.Limits, []compare.Limit{limit}) {
		t.Errorf("rates %v, want %v; limits %+v, want %+v; %v", rates, want, r.Limits, limit, err)
	}
	if limit.NotKept == 0 && fmt.Sprint(rates) != "[20 40 80 160]" {
		t.Errorf("every rate was kept, and these were offered: %v", rates)
	}
}
