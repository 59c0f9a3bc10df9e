package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/machine"
)

// startWork starts gq work and stops it at the end of the test.
func startWork(t *testing.T, s *served, args ...string) *exec.Cmd {
	t.Helper()
	work := exec.Command(cmdtest.Program(t), append([]string{"work", "--addr", s.grpc}, args...)...)
	work.Env = append(work.Environ(), "TMPDIR="+t.TempDir())
	var stderr strings.Builder
	work.Stderr = &stderr
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = work.Process.Signal(syscall.SIGTERM)
		_ = work.Wait()
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	return work
}

// batchScript completes and fails jobs of a batch by their payloads. It needs no JSON parser.
const batchScript = `
cat > "$DIR/$GQ_BATCH.$$"
status=0
while read -r line; do
	id=${line#*'"id":"'}; id=${id%%'"'*}
	payload=${line##*'"payload":'}; payload=${payload%%'}'*}
	case $payload in
	'"result"') echo "{\"id\":\"$id\",\"result\":{\"of\":\"$id\"}}";;
	'"bytes"') printf '{"id":"%s","result_base64":"AAH/"}\n\n' "$id";;
	'"busy"') echo "{\"id\":\"$id\",\"exit_status\":75,\"error\":\"busy\"}";;
	'"broken"') echo "{\"id\":\"$id\",\"error\":\"broken\"}";;
	'"silent"') ;;
	'"noise"') echo "hello";;
	'"foreign"') echo '{"id":"01890000-0000-7000-8000-000000000000"}';;
	'"twice"') echo "{\"id\":\"$id\"}"; echo "{\"id\":\"$id\"}";;
	'"dies"') status=3;;
	'"last"') printf '{"id":"%s","result":1}' "$id";;
	esac
done < "$DIR/$GQ_BATCH.$$"
echo "about to exit with $status" >&2
exit $status
`

// TestBatches runs programs for several jobs at once. Each job gets its own verdict.
func TestBatches(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--store", "memory:")
	dir, c := t.TempDir(), s.client()
	startWork(t, s, "--type", "mixed,dies,noise,foreign,twice", "--batch", "6", "--batch-wait", "300ms", "--exec", "DIR="+dir+"; "+batchScript)
	type want struct {
		payload string
		status  gq.Status
		result  string
		code    string
		message string
	}
	for typ, jobs := range map[string][]want{
		"mixed": {
			{"result", gq.StatusCompleted, "of", "", ""},
			{"bytes", gq.StatusCompleted, "\x00\x01\xff", "", ""},
			{"busy", gq.StatusDeadLetter, "", "", "exit status 75: busy"},
			{"broken", gq.StatusFailed, "", "exit_1", "exit status 1: broken"},
			{"silent", gq.StatusCompleted, "", "", ""},
			{"last", gq.StatusCompleted, "1", "", ""},
		},
		"dies":    {{"dies", gq.StatusFailed, "", "exit_3", "exit status 3: about to exit with 3"}, {"result", gq.StatusCompleted, "of", "", ""}},
		"noise":   {{"noise", gq.StatusFailed, "", "invalid_output", "line 1 of the program's output is not the result of a job"}},
		"foreign": {{"foreign", gq.StatusFailed, "", "invalid_output", "01890000-0000-7000-8000-000000000000, which the program did not get"}},
		"twice":   {{"twice", gq.StatusCompleted, "", "", ""}, {"silent", gq.StatusFailed, "", "invalid_output", "for the second time"}},
	} {
		specs := make([]gq.Spec, len(jobs))
		for i, job := range jobs {
			policy := gq.PresetSemantics.Policy()
			policy.MaxAttempts = 1
			specs[i] = gq.Spec{Type: typ, Policy: policy, Payload: gq.Payload{Data: []byte(" " + strconv.Quote(job.payload) + "\n"), ContentType: gq.JSON}}
		}
		out, err := c.SubmitBatch(t.Context(), specs)
		if err != nil {
			t.Fatal(err)
		}
		for i, job := range jobs {
			got, err := c.Wait(t.Context(), out[i].ID())
			if err != nil {
				t.Fatal(err)
			}
			if got, err = c.Get(t.Context(), out[i].ID(), gq.WithResult); err != nil {
				t.Fatal(err)
			}
			failure := gq.Failure{}
			if got.State.Failure != nil {
				failure = *got.State.Failure
			}
			if got.State.Status != job.status || job.result == "" && len(got.Result) > 0 || !strings.Contains(string(got.Result), job.result) ||
				job.code != "" && failure.Code != job.code || !strings.Contains(failure.Message, job.message) {
				t.Errorf("%s %s: %s with %q, %+v", typ, job.payload, got.State.Status, got.Result, failure)
			}
		}
	}
	// The program of the mixed jobs got all of them at once, and each line is a job.
	files, err := filepath.Glob(filepath.Join(dir, "6.*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 6 {
		t.Fatalf("%d lines: %s", len(lines), text)
	}
	for _, line := range lines {
		var job struct {
			ID           gq.JobID `json:"id"`
			Type, Queue  string
			Attempt      int
			LeaseVersion uint64 `json:"lease_version"`
			Payload      string
		}
		if err := json.Unmarshal([]byte(line), &job); err != nil || job.ID.IsZero() || job.Type != "mixed" || job.Queue != gq.DefaultQueue || job.Attempt != 1 || job.LeaseVersion == 0 || job.Payload == "" {
			t.Errorf("%s: %+v, %v", line, job, err)
		}
	}
}

// TestBatchFlags gives flags that are invalid or contradict each other.
func TestBatchFlags(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--store", "memory:")
	for _, args := range [][]string{{"--batch", "-1"}, {"--batch", "10001"}, {"--batch", "2", "--batch-wait", "0s"}, {"--batch-wait", "1s"}} {
		out := s.gq(append([]string{"work", "--type", "t", "--exec", "true"}, args...)...)
		if out.status != 2 || !strings.Contains(out.stderr, strings.TrimPrefix(args[len(args)-2], "--")) {
			t.Errorf("%q: %+v", args, out)
		}
	}
}

// TestPayloadsOfBatches sends payloads that are not JSON.
func TestPayloadsOfBatches(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--store", "memory:")
	c := s.client()
	startWork(t, s, "--type", "echo", "--batch", "2", "--batch-wait", "10ms", "--exec", `
		while read -r line; do
			id=${line#*'"id":"'}; id=${id%%'"'*}
			printf '{"id":"%s","result":%s}\n' "$id" "$line"
		done`)
	out, err := c.Submit(t.Context(), gq.Spec{Type: "echo", Metadata: gq.Metadata{CorrelationID: "order 7"}, Payload: gq.Payload{Data: []byte("a\nb"), ContentType: "text/plain"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Wait(t.Context(), out.ID()); err != nil {
		t.Fatal(err)
	}
	job, err := c.Get(t.Context(), out.ID(), gq.WithResult)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"payload_base64":"YQpi"`, `"content_type":"text/plain"`, `"correlation_id":"order 7"`} {
		if !strings.Contains(string(job.Result), part) {
			t.Errorf("%s has no %s", job.Result, part)
		}
	}
}

// TestProgramEndsWithItsWorker kills a worker. The program that it has started ends too.
func TestProgramEndsWithItsWorker(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux ends a program with its parent")
	}
	s := startServer(t, nil, "--store", "memory:")
	file := filepath.Join(t.TempDir(), "pid")
	work := startWork(t, s, "--type", "t", "--exec", fmt.Sprintf("echo $$ > %s.new && mv %s.new %s && exec sleep 3600", file, file, file))
	if _, err := s.client().Submit(t.Context(), gq.Spec{Type: "t", Policy: machine.DefaultPolicy()}); err != nil {
		t.Fatal(err)
	}
	var pid int
	cmdtest.WaitFor(t, "the program", func() bool {
		text, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	if err := work.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmdtest.WaitFor(t, "the end of the program", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || zombie(pid) })
}

// zombie reports whether a process has ended and its parent does not ask for its status.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(text), ") Z ")
}
