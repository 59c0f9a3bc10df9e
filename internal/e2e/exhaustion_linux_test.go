package e2e_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// make test-exhaustion runs the test with servers that are short of memory.
var exhaust = flag.Bool("exhaust", false, "run TestExhaustion, which needs root, 4 GiB of memory and some minutes")

const adminToken = "bootstrap-bootstrap"

// TestExhaustion takes from servers in control groups all that their limits allow, and asks for more. What is beyond a
// limit is refused with its number, and the server answers others meanwhile and afterwards.
func TestExhaustion(t *testing.T) {
	if !*exhaust {
		t.Skip("make test-exhaustion runs it")
	}
	t.Run("open pages of the dashboard", func(t *testing.T) { exhaustPages(t, confined(t, 1<<30, "memory:")) })
	t.Run("waiting claims", func(t *testing.T) { exhaustClaims(t, confined(t, 1<<30, "memory:")) })
	t.Run("a million keyed jobs", func(t *testing.T) { exhaustKeys(t, confined(t, 2<<30, "file:"+filepath.Join(t.TempDir(), "data"))) })
}

// confinedServer is a server with a memory limit.
type confinedServer struct {
	*served
	admin *client.Client
}

// confined starts a server in a control group of its own, of version 1 or 2, that cannot swap.
func confined(t *testing.T, limit int64, store string) *confinedServer {
	t.Helper()
	group, settings := "/sys/fs/cgroup/memory", []string{"memory.limit_in_bytes", "memory.memsw.limit_in_bytes"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, settings = "/sys/fs/cgroup", []string{"memory.max", "memory.swap.max"}
		_ = os.WriteFile(filepath.Join(group, "cgroup.subtree_control"), []byte("+memory"), 0) // the limit is checked below
	}
	group = filepath.Join(group, "gq-exhaustion-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatalf("a memory limit needs root and control groups: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(group, settings[0]), strconv.AppendInt(nil, limit, 10), 0); err != nil {
		t.Fatal(err)
	}
	swap := strconv.FormatInt(limit, 10) // with memory; version 2 counts it alone
	if settings[1] == "memory.swap.max" {
		swap = "0"
	}
	_ = os.WriteFile(filepath.Join(group, settings[1]), []byte(swap), 0) // the machine may have none
	command := exec.Command("sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(group, "cgroup.procs"),
		cmdtest.Program(t), "serve", "--store", store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	s := &confinedServer{served: launch(t, []string{"GQ_ADMIN_TOKEN=" + adminToken}, command)}
	admin, err := client.New(s.grpc, client.Options{Token: adminToken})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	s.admin = admin
	return s
}

// token creates a token with one scope on a queue.
func (s *confinedServer) token(name, scope, queue string) string {
	s.t.Helper()
	out := s.gqAs([]string{"GQ_TOKEN=" + adminToken}, "token", "create", name, "--scope", scope, "--queue", queue)
	if out.status != 0 {
		s.t.Fatalf("%+v", out)
	}
	return strings.TrimSpace(out.stdout)
}

// peak returns the largest resident size so far, in MiB.
func (s *confinedServer) peak() int64 {
	s.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Command.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	var kib int64
	if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok {
		_, err = fmt.Sscan(rest, &kib)
	}
	if err != nil || kib == 0 {
		s.t.Fatalf("the size of the server: %v", err)
	}
	return kib >> 10
}

// lives checks that the server is well and takes jobs, and tells how long that took and how large it has become.
func (s *confinedServer) lives(when string) {
	s.t.Helper()
	began := time.Now()
	response, err := http.Get("http://" + s.http + "/readyz")
	if err != nil {
		s.t.Fatalf("%s: %v", when, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		s.t.Errorf("%s: /readyz says %d", when, response.StatusCode)
	}
	ready := time.Since(began)
	began = time.Now()
	if _, err := s.admin.Submit(s.t.Context(), gq.Spec{Queue: "others", Type: "t"}); err != nil {
		s.t.Fatalf("%s: submit: %v", when, err)
	}
	s.t.Logf("%s: at most %d MiB; ready after %v, a job is submitted in %v", when, s.peak(), ready.Round(time.Microsecond), time.Since(began).Round(time.Microsecond))
}

var csrfField = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// signIn returns the cookie of a session of the dashboard.
func (s *confinedServer) signIn(token string) string {
	s.t.Helper()
	base := "http://" + s.http
	visitor := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	send := func(method string, form url.Values) *http.Response {
		r, err := http.NewRequestWithContext(s.t.Context(), method, base+"/signin", strings.NewReader(form.Encode()))
		if err != nil {
			s.t.Fatal(err)
		}
		r.Header.Set("Accept", "text/html")
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", base)
		response, err := visitor.Do(r)
		if err != nil {
			s.t.Fatal(err)
		}
		return response
	}
	form := send(http.MethodGet, nil)
	page, err := io.ReadAll(form.Body)
	form.Body.Close()
	found := csrfField.FindSubmatch(page)
	if err != nil || found == nil {
		s.t.Fatalf("the form to sign in: %v\n%s", err, page)
	}
	response := send(http.MethodPost, url.Values{"csrf": {string(found[1])}, "token": {token}})
	response.Body.Close()
	if len(response.Cookies()) == 0 {
		s.t.Fatalf("signing in is answered with %s", response.Status)
	}
	return response.Cookies()[0].Name + "=" + response.Cookies()[0].Value
}

// stream opens the stream of a page that reads nothing after the greeting. refusal is the answer if there is none.
func (s *confinedServer) stream(cookie string) (open net.Conn, refusal string, err error) {
	c, err := net.Dial("tcp", s.http)
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if open == nil {
			c.Close()
		}
	}()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, "", err
	}
	if _, err := fmt.Fprintf(c, "GET /live HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\nCookie: %s\r\n\r\n", s.http, cookie); err != nil {
		return nil, "", err
	}
	answer := bufio.NewReaderSize(c, 1024)
	response, err := http.ReadResponse(answer, nil)
	if err != nil {
		return nil, "", err
	}
	if response.StatusCode != http.StatusOK {
		text, err := io.ReadAll(response.Body)
		return nil, response.Status + ": " + string(text), err
	}
	for body, line := bufio.NewReader(response.Body), ""; line != "event: hello\n"; {
		if line, err = body.ReadString('\n'); err != nil {
			return nil, "", fmt.Errorf("before the greeting: %w", err)
		}
	}
	return c, "", nil
}

// exhaustPages opens more pages than one token may have, while jobs are submitted.
func exhaustPages(t *testing.T, s *confinedServer) {
	const most, beyond = 5000, 100
	cookie := s.signIn(s.token("viewer", "read", "*"))
	s.lives("before")
	var mu sync.Mutex
	var open []net.Conn         // guarded by mu
	var refused, wrong []string // guarded by mu
	var next atomic.Int64
	var openers sync.WaitGroup
	for range 50 {
		openers.Go(func() {
			for next.Add(1) <= most+beyond {
				c, refusal, err := s.stream(cookie)
				mu.Lock()
				switch {
				case err != nil:
					wrong = append(wrong, err.Error())
				case c != nil:
					open = append(open, c)
				case strings.HasPrefix(refusal, "429") && strings.Contains(refusal, "5000 event subscriptions"):
					refused = append(refused, refusal)
				default:
					wrong = append(wrong, refusal)
				}
				mu.Unlock()
			}
		})
	}
	openers.Wait()
	if len(open) != most || len(refused) != beyond || len(wrong) > 0 {
		t.Errorf("%d pages are open and %d refused, want %d and %d; %d other answers, such as %.300q", len(open), len(refused), most, beyond, len(wrong), wrong)
	}
	if len(refused) > 0 {
		t.Logf("refused: %s", refused[0])
	}
	s.lives("with all pages open")
	for range 20 {
		if _, err := s.admin.SubmitBatch(t.Context(), make1000(func(int) gq.Spec { return gq.Spec{Queue: "busy", Type: "t"} })); err != nil {
			t.Fatal(err)
		}
	}
	s.lives("after 20,000 jobs, with all pages open")
	for _, c := range open {
		c.Close()
	}
	cmdtest.WaitFor(t, "a place for another page", func() bool {
		c, _, err := s.stream(cookie)
		if c != nil {
			c.Close()
		}
		return c != nil && err == nil
	})
	s.lives("after all pages have gone")
}

func make1000(spec func(i int) gq.Spec) []gq.Spec {
	specs := make([]gq.Spec, 1000)
	for i := range specs {
		specs[i] = spec(i)
	}
	return specs
}

// exhaustClaims lets two tokens wait with more claims than one token may have, and than the server allows.
func exhaustClaims(t *testing.T, s *confinedServer) {
	s.lives("before")
	ctx, stop := context.WithCancel(t.Context())
	var claims sync.WaitGroup
	defer claims.Wait()
	defer stop()
	var jobs atomic.Int64
	for _, c := range []struct {
		name         string
		most, beyond int
		says         string
	}{{"first", 12_000, 100, "12000 waiting calls"}, {"second", 8000, 100, "20000 waiting calls"}} {
		as := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.token(c.name, "work", "idle"))
		var workers [4]pb.WorkersServiceClient // a connection has up to 4096 calls
		for i := range workers {
			conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			workers[i] = pb.NewWorkersServiceClient(conn)
		}
		refused := make(chan error, c.most+c.beyond)
		for i := range c.most + c.beyond {
			claims.Go(func() {
				answer, err := workers[i%len(workers)].Claim(as, &pb.ClaimRequest{
					Worker: fmt.Sprintf("%s-%d", c.name, i), Queues: []string{"idle"}, Wait: durationpb.New(time.Hour),
				})
				if ctx.Err() == nil && err != nil {
					refused <- err
				}
				jobs.Add(int64(len(answer.GetJobs())))
			})
		}
		for n := range c.beyond {
			select {
			case err := <-refused:
				if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), c.says) {
					t.Errorf("a claim of the %s token beyond the limit: %v", c.name, err)
				} else if n == 0 {
					t.Logf("refused: %v", err)
				}
			case <-time.After(patience):
				t.Fatalf("%d claims of the %s token were refused, want %d", n, c.name, c.beyond)
			}
		}
		s.lives(fmt.Sprintf("with all claims of the %s token", c.name))
		if n := len(refused); n > 0 {
			t.Errorf("%d claims of the %s token within the limit were refused, such as %v", n, c.name, <-refused)
		}
	}
	if _, err := s.admin.SubmitBatch(t.Context(), make1000(func(int) gq.Spec { return gq.Spec{Queue: "idle", Type: "t"} })); err != nil {
		t.Fatal(err)
	}
	cmdtest.WaitFor(t, "1000 of the claims to get a job", func() bool { return jobs.Load() == 1000 })
	s.lives("after 1000 jobs")
	stop()
	claims.Wait()
	s.lives("after all claims have gone")
}

// exhaustKeys submits and cancels a million jobs with everything that takes memory while they wait.
func exhaustKeys(t *testing.T, s *confinedServer) {
	const jobs = 1_000_000
	s.lives("before")
	var next atomic.Int64
	var submitters sync.WaitGroup
	began := time.Now()
	for range 4 {
		submitters.Go(func() {
			for first := next.Add(1000) - 1000; first < jobs && !t.Failed(); first = next.Add(1000) - 1000 {
				answers, err := s.admin.SubmitBatch(t.Context(), make1000(func(i int) gq.Spec {
					n := strconv.FormatInt(first+int64(i), 10)
					return gq.Spec{
						Queue: "bulk", Type: "import.row", Key: gq.IdempotencyKey{Name: "row-" + n}, Unique: gq.UniqueRule{While: gq.WhileLive},
						LimitKey: "limit-" + n, OrderKey: "order-" + n, Metadata: gq.Metadata{Tags: map[string]string{"row": n}},
					}
				}))
				if err != nil {
					t.Error(err)
					return
				}
				for i := range answers {
					if answers[i].Err != nil || answers[i].Existing {
						t.Errorf("job %d: %+v", first+int64(i), answers[i])
						return
					}
				}
			}
		})
	}
	submitters.Wait()
	if t.Failed() {
		return
	}
	s.lives(fmt.Sprintf("with %d jobs after %v", jobs, time.Since(began).Round(time.Second)))
	began = time.Now()
	cancelled := 0
	for cancelled < jobs {
		report, err := s.admin.CancelWhere(t.Context(), gq.Query{Queue: "bulk"}, "not needed")
		if err != nil {
			t.Fatal(err)
		}
		if report.Cancelled == 0 {
			break
		}
		cancelled += report.Cancelled
	}
	if cancelled != jobs {
		t.Errorf("%d jobs were cancelled, want %d", cancelled, jobs)
	}
	s.lives(fmt.Sprintf("after all were cancelled in %v", time.Since(began).Round(time.Second)))
}
