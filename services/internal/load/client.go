package load

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// client routes calls as the designs require: submits go to the targets in turn, calls
// about a job to the target that its id hashes to. With one target both are the same.
type client struct {
	targets [][]publicpb.TaskQueuePublicServiceClient // connections of each target
	turn    atomic.Uint64                             // counts submits
	spread  atomic.Uint64                             // counts calls about jobs, to spread them over connections
	conns   []io.Closer
}

func dial(s Settings) (*client, error) {
	c := &client{targets: make([][]publicpb.TaskQueuePublicServiceClient, len(s.Targets))}
	for i, addr := range s.Targets {
		for range max(1, s.Connections/len(s.Targets)) {
			conn, err := rpc.DialOnce(addr, "load", s.credentials()...)
			if err != nil {
				c.close()
				return nil, err
			}
			c.conns = append(c.conns, conn)
			c.targets[i] = append(c.targets[i], publicpb.NewTaskQueuePublicServiceClient(conn))
		}
	}
	return c, nil
}

// credentials returns the options for TLS and the token.
func (s Settings) credentials() (options []grpc.DialOption) {
	if s.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(credentials.NewTLS(s.TLS)))
	}
	if s.Token != "" {
		options = append(options, grpc.WithPerRPCCredentials(bearer(s.Token)))
	}
	return options
}

// bearer is a token sent with every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}

// RequireTransportSecurity returns false: locally a token may be sent without TLS.
func (b bearer) RequireTransportSecurity() bool { return false }

func (c *client) close() {
	for _, conn := range c.conns {
		_ = conn.Close() // the measurement is over
	}
}

// next returns the target of the next submit.
func (c *client) next() publicpb.TaskQueuePublicServiceClient {
	n := int(c.turn.Add(1) - 1)
	conns := c.targets[n%len(c.targets)]
	return conns[n/len(c.targets)%len(conns)]
}

// owner returns the target of calls about a job.
func (c *client) owner(id string) publicpb.TaskQueuePublicServiceClient {
	conns := c.targets[taskwork.Owner(id, len(c.targets))]
	return conns[int(c.spread.Add(1)-1)%len(conns)]
}

const jobType = "load"

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// perform makes one call, checks the answer and updates the job. It submits instead of
// asking about a job if there is none, and asks for a status instead of submitting if
// too many are open. It returns the method it called.
func (r *run) perform(ctx context.Context, m Method, due time.Time) (Method, error) {
	if m == Submit && r.jobs.full() {
		r.heldBack.Add(1)
		m = Status
	}
	if m != Submit {
		if j := r.jobs.take(m); j != nil {
			return m, r.ask(ctx, m, j)
		}
	}
	return Submit, r.submit(ctx, due)
}

func (r *run) submit(ctx context.Context, due time.Time) error {
	sent := time.Now()
	answer, err := r.client.next().SubmitJob(ctx, &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{
		JobType: jobType, WorkDurationMs: uint32(r.Work.Milliseconds()), PayloadSizeBytes: r.Payload,
	}})
	if err != nil {
		return err
	}
	id := answer.GetJobId()
	switch {
	case !uuid4.MatchString(id):
		r.violation("submit answered the id %q, not a UUIDv4", id)
	case answer.GetInitialStatus() != publicpb.JobStatus_QUEUED:
		r.violation("submit answered %v", answer.GetInitialStatus())
	case answer.GetAcceptedAtMs() <= 0:
		r.violation("submit of %s was accepted at %d", id, answer.GetAcceptedAtMs())
	case !r.Blind && !r.jobs.add(&job{id: id, due: due, late: sent.Sub(due), measured: r.inWindow(due)}):
		r.violation("submit answered the id %s a second time", id)
	}
	return nil
}

// ask makes a call about a job and puts the job back.
func (r *run) ask(ctx context.Context, m Method, j *job) error {
	err := r.query(ctx, m, j)
	r.jobs.put(j, err)
	return err
}

// query makes a call about a job and checks the answer.
func (r *run) query(ctx context.Context, m Method, j *job) error {
	if m == Status {
		answer, err := r.client.owner(j.id).GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: j.id})
		if err == nil {
			r.checkStatus(j, answer)
		}
		return err
	}
	answer, err := r.client.owner(j.id).GetJobResult(ctx, &publicpb.GetJobResultRequest{JobId: j.id})
	if err == nil {
		r.checkResult(j, answer)
	}
	return err
}

func (r *run) checkStatus(j *job, a *publicpb.GetJobStatusResponse) {
	ended := a.GetStatus() > publicpb.JobStatus_RUNNING
	switch {
	case a.GetJobId() != j.id:
		r.violation("status of %s is about %s", j.id, a.GetJobId())
	case a.GetStatus() < publicpb.JobStatus_QUEUED || a.GetStatus() > publicpb.JobStatus_CANCELED:
		r.violation("status of %s is %v", j.id, a.GetStatus())
	case a.GetStatus() < j.status || j.status > publicpb.JobStatus_RUNNING && a.GetStatus() != j.status:
		r.violation("status of %s went from %v to %v", j.id, j.status, a.GetStatus())
	case a.GetStatus() == publicpb.JobStatus_FAILED && r.Payload <= taskwork.MaxOutputBytes && a.GetFailureReason() != "WORKER_LOST":
		r.violation("%s failed: %s", j.id, a.GetFailureReason())
	case a.GetStatus() == publicpb.JobStatus_CANCELED && !j.canceled:
		r.violation("%s was canceled, and nobody asked for that", j.id)
	case a.GetStatus() != publicpb.JobStatus_FAILED && a.GetFailureReason() != "":
		r.violation("%s is %v with the failure reason %q", j.id, a.GetStatus(), a.GetFailureReason())
	case a.GetCreatedAtMs() <= 0, ended != (a.GetFinishedAtMs() > 0),
		a.GetStartedAtMs() > 0 && a.GetStartedAtMs() < a.GetCreatedAtMs(),
		a.GetFinishedAtMs() > 0 && a.GetFinishedAtMs() < max(a.GetStartedAtMs(), a.GetCreatedAtMs()):
		r.violation("%s is %v with times %d, %d, %d", j.id, a.GetStatus(), a.GetCreatedAtMs(), a.GetStartedAtMs(), a.GetFinishedAtMs())
	}
	j.status = a.GetStatus()
	if ended {
		j.created, j.started, j.finished = a.GetCreatedAtMs(), a.GetStartedAtMs(), a.GetFinishedAtMs()
	}
}

func (r *run) checkResult(j *job, a *publicpb.GetJobResultResponse) {
	switch {
	case a.GetJobId() != j.id:
		r.violation("result of %s is about %s", j.id, a.GetJobId())
	case a.GetResultReady() != (a.GetTerminalStatus() != publicpb.JobStatus_JOB_STATUS_UNSPECIFIED):
		r.violation("result of %s: ready is %v and the status %v", j.id, a.GetResultReady(), a.GetTerminalStatus())
	case !a.GetResultReady() && j.status > publicpb.JobStatus_RUNNING:
		r.violation("%s is %v, and its result not ready", j.id, j.status)
	case a.GetChecksum() != taskwork.Checksum(a.GetOutputBytes()):
		r.violation("result of %s has the wrong checksum", j.id)
	case a.GetTerminalStatus() == publicpb.JobStatus_DONE && !r.isOutput(a.GetOutputBytes()):
		r.violation("result of %s has %d wrong bytes", j.id, len(a.GetOutputBytes()))
	case j.status > publicpb.JobStatus_RUNNING && a.GetTerminalStatus() != j.status:
		r.violation("%s is %v and its result %v", j.id, j.status, a.GetTerminalStatus())
	}
	if a.GetResultReady() {
		j.status, j.verified = a.GetTerminalStatus(), true
	}
}

// isOutput compares with the output that every job of the run must produce.
func (r *run) isOutput(output []byte) bool { return string(output) == r.output }

// violation records a wrong answer.
func (r *run) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations++
	if len(r.examples) < 20 {
		r.examples = append(r.examples, fmt.Sprintf(format, args...))
	}
}
