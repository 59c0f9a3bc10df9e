package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/admin"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/store/local"
)

// fortress is everything behind the guard.
type fortress struct {
	*testing.T
	engine *engine.Engine
	ring   *access.Keyring
	hooks  *delivery.Hooks
	http   *HTTP
	grpc   *GRPC
	web    *httptest.Server
	conn   *grpc.ClientConn
	names  atomic.Int64
	tokens map[string]string // by name
}

func newFortress(t *testing.T) *fortress {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f := &fortress{T: t, tokens: map[string]string{}}
	if f.engine, err = engine.New(s, engine.Options{}); err != nil {
		t.Fatal(err)
	}
	if f.ring, err = access.NewKeyring(s, ""); err != nil {
		t.Fatal(err)
	}
	gate, guard := access.NewGate(f.ring, true, nil), access.NewGuard(f.engine)
	f.hooks = delivery.New(f.engine, s, delivery.Options{Attempts: 1, Exclusive: true})
	if err := f.hooks.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	hub := feed.New(f.engine)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- hub.Run(ctx) }()
	go func() { done <- f.hooks.Run(ctx) }()
	events, administration := feed.NewFeed(hub, guard), admin.New(guard, f.ring, f.hooks, admin.Backups{}, trail.New(s, slog.New(slog.DiscardHandler), nil))
	f.http = NewHTTP(guard, HTTPOptions{Identify: gate.HTTP, Feed: events, Admin: administration, Metrics: overseen(guard.Oversee)})
	f.web = httptest.NewServer(f.http)
	f.grpc = NewGRPC(guard, GRPCOptions{Feed: events, Admin: administration, Unary: []grpc.UnaryServerInterceptor{gate.Unary}, Stream: []grpc.StreamServerInterceptor{gate.Stream}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go f.grpc.Serve(listener) //nolint:errcheck // ends with Stop
	if f.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.http.Drain()
		f.conn.Close()
		f.grpc.Stop()
		f.web.CloseClientConnections()
		f.web.Close()
		f.http.Wait()
		stop()
		if err := errors.Join(<-done, <-done); err != nil {
			t.Error(err)
		}
	})
	return f
}

// token creates a token with one scope.
func (f *fortress) token(s access.Scope, pattern string) string {
	f.Helper()
	name := fmt.Sprintf("%s@%s", s, pattern)
	if f.tokens[name] == "" {
		f.tokens[name] = f.rated(0, s, pattern)
	}
	return f.tokens[name]
}

// rated creates a token with a rate limit in calls per second.
func (f *fortress) rated(rate int, s access.Scope, pattern string) string {
	f.Helper()
	_, text, err := f.ring.Create(f.Context(), access.Token{
		Name: fmt.Sprintf("%s@%s-%d", s, pattern, f.names.Add(1)), Grants: []access.Grant{{Scopes: s, Queues: []string{pattern}}}, Rate: rate,
	})
	if err != nil {
		f.Fatal(err)
	}
	return text
}

// scene creates the objects that a call may name, all in one queue: a running job, an
// ended one whose webhook was given up, and a schedule.
func (f *fortress) scene(queue string) *strings.Replacer {
	f.Helper()
	ctx := f.Context()
	claim := func(callback string) gq.Job {
		out, err := f.engine.Submit(ctx, gq.Spec{Queue: queue, Type: "t", Metadata: gq.Metadata{CallbackURL: callback}})
		if err != nil {
			f.Fatal(err)
		}
		if _, err := f.engine.Resume(ctx, queue); err != nil {
			f.Fatal(err)
		}
		jobs, err := f.engine.Claim(ctx, gq.ClaimRequest{Worker: "w-" + queue, Queues: []string{queue}, N: 1000})
		// There may also be jobs that calls created, and jobs whose leases have ended.
		i := slices.IndexFunc(jobs, func(j gq.Job) bool { return j.Spec.ID == out.ID() })
		if err != nil || i < 0 {
			f.Fatalf("%d jobs, %v", len(jobs), err)
		}
		return jobs[i]
	}
	running := claim("")
	if _, err := f.engine.PutSchedule(ctx, gq.Schedule{Name: queue, Every: time.Hour, Template: gq.Spec{Queue: queue, Type: "t"}}); err != nil {
		f.Fatal(err)
	}
	ended := claim("http://127.0.0.1:9/forbidden")
	if _, err := f.engine.Complete(ctx, ended.State.Lease.Ref(), nil); err != nil {
		f.Fatal(err)
	}
	history, err := f.engine.History(ctx, ended.Spec.ID)
	if err != nil {
		f.Fatal(err)
	}
	message := fmt.Sprintf("msg_%s.%d", ended.Spec.ID, history[len(history)-1].Seq)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if d, err := f.hooks.Get(ctx, message); err == nil && d.State == delivery.Dead {
			break
		}
		if time.Now().After(deadline) {
			f.Fatal("the webhook was not given up")
		}
	}
	flow := func() string {
		f.Helper()
		w := gq.NewWorkflow("w")
		w.Signal(queue, gq.Unlimited, gq.InQueue(queue))
		id, err := f.engine.SubmitWorkflow(ctx, w)
		if err != nil {
			f.Fatal(err)
		}
		return id.String()
	}
	waits, over := flow(), flow()
	if id, err := wire.ParseWorkflowID(over); err != nil {
		f.Fatal(err)
	} else if _, err := f.engine.CancelWorkflow(ctx, id, ""); err != nil {
		f.Fatal(err)
	}
	return strings.NewReplacer("$FLOW", waits, "$OVER", over, "$QUEUE", queue, "$JOB", running.Spec.ID.String(), "$LEASE", string(running.State.Lease.ID),
		"$DONE", ended.Spec.ID.String(), "$DELIVERY", message, "$NEW", fmt.Sprint("new-", f.names.Add(1)))
}

// verdict is the result of a call.
type verdict struct {
	denied  bool
	unknown bool   // the caller is unauthenticated
	limited bool   // the rate limit was exceeded
	text    string // the error message
}

// rpc makes a call.
func (f *fortress) rpc(token, name string, a callNeeds, scene *strings.Replacer) verdict {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), 2*time.Minute)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	full := protoreflect.FullName("gopherqueue.v1." + strings.ReplaceAll(name, "/", "."))
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if err != nil {
		f.Fatal(err)
	}
	method := found.(protoreflect.MethodDescriptor)
	if method.IsStreamingServer() {
		return f.stream(ctx, name, scene.Replace(a.body), scene)
	}
	in, out := newMessage(f, method.Input()), newMessage(f, method.Output())
	if err := protojson.Unmarshal([]byte(scene.Replace(a.body)), in); err != nil {
		f.Fatalf("%s: %v", name, err)
	}
	err = f.conn.Invoke(ctx, "/gopherqueue.v1."+name, in, out)
	return f.judge(err, protojson.Format(out))
}

func newMessage(f *fortress, d protoreflect.MessageDescriptor) proto.Message {
	f.Helper()
	t, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		f.Fatal(err)
	}
	return t.New().Interface()
}

// judge interprets a status, or the results inside a batch.
func (f *fortress) judge(err error, text string) verdict {
	return verdict{
		denied:  status.Code(err) == codes.PermissionDenied || strings.Contains(strings.ReplaceAll(text, " ", ""), `"code":"denied"`),
		unknown: status.Code(err) == codes.Unauthenticated, text: text,
		limited: status.Code(err) == codes.ResourceExhausted || strings.Contains(text, "rate_limited"),
	}
}

func (f *fortress) stream(ctx context.Context, name, body string, scene *strings.Replacer) verdict {
	f.Helper()
	if name == "EventsService/Subscribe" {
		r := &pb.SubscribeRequest{}
		if err := protojson.Unmarshal([]byte(body), r); err != nil {
			f.Fatal(err)
		}
		s, err := pb.NewEventsServiceClient(f.conn).Subscribe(ctx, r)
		if err != nil {
			f.Fatal(err)
		}
		if head, err := s.Header(); err != nil || head == nil { // it was rejected, and Recv returns why
			_, err := s.Recv()
			return f.judge(err, "")
		}
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		received := make(chan error, 1)
		go func() { _, err := s.Recv(); received <- err }()
		select {
		case err := <-received:
			return f.judge(err, "")
		case <-ctx.Done():
			return verdict{}
		}
	}
	// A Work stream: each of its requests is judged separately.
	s, err := pb.NewWorkersServiceClient(f.conn).Work(ctx)
	if err != nil {
		f.Fatal(err)
	}
	var all []verdict
	for i, text := range []string{
		`{"id":1,"hello":{"worker":"x"}}`,
		`{"id":2,"credit":{"queues":["$QUEUE"],"types":["none"]}}`,
		`{"id":3,"heartbeat":{"beats":[{"lease":{"id":"$LEASE"}}]}}`,
		`{"id":4,"settle":{"outcomes":[{"lease":{"id":"$LEASE"},"release":{}}]}}`,
	} {
		m := &pb.WorkRequest{}
		if err := protojson.Unmarshal([]byte(scene.Replace(text)), m); err != nil {
			f.Fatal(err)
		}
		if err := s.Send(m); err != nil && !errors.Is(err, io.EOF) {
			f.Fatal(err)
		}
		answer, err := s.Recv()
		v := f.judge(err, protojson.Format(answer))
		if v.unknown {
			return v
		}
		if i > 0 {
			all = append(all, v)
		}
	}
	for _, v := range all[1:] {
		if v.denied != all[0].denied {
			f.Errorf("on one stream: %+v", all)
		}
	}
	return all[0]
}

// route makes a request.
func (f *fortress) route(token, name string, a callNeeds, scene *strings.Replacer) verdict {
	f.Helper()
	method, path, _ := strings.Cut(name, " ")
	switch {
	case strings.Contains(path, "/leases/"):
		path = strings.Replace(path, "{id}", "$LEASE", 1)
	case strings.HasSuffix(path, "/retry") && strings.Contains(path, "/workflows/"):
		path = strings.Replace(path, "{id}", "$OVER", 1)
	case strings.Contains(path, "/workflows/"):
		path = strings.Replace(path, "{id}", "$FLOW", 1)
	case strings.Contains(path, "/deliveries/"):
		path = strings.Replace(path, "{id}", "$DELIVERY", 1)
	case method == http.MethodPatch || strings.HasSuffix(path, "/cancel"):
		path = strings.Replace(path, "{id}", "$JOB", 1)
	default:
		path = strings.Replace(path, "{id}", "$DONE", 1)
	}
	path = scene.Replace(strings.Replace(path, "{name}", "$QUEUE", 1))
	body := scene.Replace(a.body)
	if strings.HasPrefix(body, "?") {
		path, body = path+body, ""
	}
	ctx, cancel := context.WithTimeout(f.Context(), 2*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, f.web.URL+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if strings.HasSuffix(name, "/ws") {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		f.Fatalf("%s: %v", name, err)
	}
	defer answer.Body.Close()
	text := []byte{}
	if !strings.HasPrefix(path, "/v1/events") || answer.StatusCode >= 300 {
		text, _ = io.ReadAll(answer.Body)
	}
	if answer.StatusCode == http.StatusNotFound && strings.Contains(string(text), "no_such_route") || answer.StatusCode == http.StatusMethodNotAllowed {
		f.Errorf("%s: %d %s", name, answer.StatusCode, text)
	}
	return verdict{
		denied:  answer.StatusCode == http.StatusForbidden || strings.Contains(string(text), `"code":"denied"`),
		unknown: answer.StatusCode == http.StatusUnauthorized, text: string(text),
		limited: answer.StatusCode == http.StatusTooManyRequests || strings.Contains(string(text), `"code":"rate_limited"`),
	}
}

// Calls every RPC and every route, with every role, on the caller's own queue and on a
// foreign one. A new one without a row fails the test.
func TestEveryCallIsGuarded(t *testing.T) {
	if testing.Short() {
		t.Skip("makes every call with every token")
	}
	f := newFortress(t)
	var rpcs, routes []string
	for service, info := range f.grpc.GetServiceInfo() {
		if name, ours := strings.CutPrefix(service, "gopherqueue.v1."); ours {
			for _, m := range info.Methods {
				rpcs = append(rpcs, name+"/"+m.Name)
			}
		}
	}
	for path, item := range f.http.Document().Paths {
		for method := range item {
			routes = append(routes, strings.ToUpper(method)+" "+path)
		}
	}
	routes = append(routes, "GET /docs", "GET /openapi.json", "GET /metrics") // which are about others, or nothing
	for _, c := range []struct {
		kind  string
		there []string
		rows  map[string]callNeeds
		call  func(token, name string, a callNeeds, scene *strings.Replacer) verdict
	}{{"RPC", rpcs, rpcAccess, f.rpc}, {"route", routes, routeAccess, f.route}} {
		slices.Sort(c.there)
		if known := slices.Sorted(maps.Keys(c.rows)); !slices.Equal(c.there, known) {
			t.Errorf("%ss and rows differ:\n%v\n%v", c.kind, c.there, known)
		}
		for name, a := range c.rows {
			f.check(c.kind+" "+name, name, a, c.call)
		}
	}
}

func (f *fortress) check(what, name string, a callNeeds, call func(string, string, callNeeds, *strings.Replacer) verdict) {
	f.Helper()
	if v := call("", name, a, f.scene("own")); v.unknown == a.open {
		f.Errorf("%s without a token: %+v", what, v)
	}
	if a.open {
		return
	}
	scenes := map[string]*strings.Replacer{} // by queue; a call that was denied or only reads leaves its scene as it was
	for _, role := range []access.Scope{access.Submit, access.Work, access.Read, access.Admin} {
		has := role == access.Admin || role&a.needs != 0
		for _, pattern := range []string{"own", "*"} {
			token := f.token(role, pattern)
			for _, queue := range []string{"own", "foreign"} {
				may := has && (pattern == "*" || queue == "own" && !a.whole)
				if scenes[queue] == nil {
					scenes[queue] = f.scene(queue)
				}
				v := call(token, name, a, scenes[queue])
				if !v.denied && a.needs != access.Read {
					delete(scenes, queue)
				}
				as := fmt.Sprintf("%s by %s@%s on %s", what, role, pattern, queue)
				switch {
				case v.unknown:
					f.Errorf("%s: the token is not known", as)
				case a.lists:
					if v.denied == has {
						f.Errorf("%s: denied %t, %s", as, v.denied, v.text)
					}
					if pattern == "own" && strings.Contains(v.text, "foreign") {
						f.Errorf("%s tells of a foreign queue: %s", as, v.text)
					}
				case v.denied == may:
					f.Errorf("%s: denied %t, %.300s", as, v.denied, v.text)
				}
			}
		}
	}
}

// Every call counts once against the rate of its token, whatever the server reads for it;
// each request on a Work stream counts too.
func TestEveryCallCountsOnce(t *testing.T) {
	f := newFortress(t)
	for name, a := range rpcAccess {
		if name == "WorkersService/Work" {
			continue // carries many, see below
		}
		if v := f.rpc(f.rated(1, access.Admin, "*"), name, a, f.scene("own")); v.limited {
			t.Errorf("%s counts more than once: %s", name, v.text)
		}
	}
	for name, a := range routeAccess {
		if v := f.route(f.rated(1, access.Admin, "*"), name, a, f.scene("own")); v.limited {
			t.Errorf("%s counts more than once: %s", name, v.text)
		}
	}
	batch := callNeeds{body: `{"jobs":[{"type":"t","policy":{"max_attempts":2}},{"type":"t","policy":{"max_attempts":3}}]}`}
	if v := f.route(f.rated(1, access.Submit, "*"), "POST /v1/jobs/batch", batch, f.scene("own")); v.limited {
		t.Errorf("jobs with policies count one by one: %s", v.text)
	}

	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+f.rated(1, access.Work, "*"))
	s, err := pb.NewWorkersServiceClient(f.conn).Work(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(&pb.WorkRequest{Id: 1, Message: &pb.WorkRequest_Hello{Hello: &pb.Hello{Worker: "w"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute) // a loaded machine may be slower than the rate
	for id, limited := uint64(2), false; !limited; id++ {
		if err := s.Send(&pb.WorkRequest{Id: id, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{}}}); err != nil {
			t.Fatal(err)
		}
		answer, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if limited = answer.GetProblem().GetCode() == gq.ErrRateLimited.Code; !limited && time.Now().After(deadline) {
			t.Fatal("requests on a stream do not count")
		}
	}
}

// A subscriber whose token is revoked or expires is disconnected at once, even while
// nothing happens.
func TestTheEndOfATokenEndsItsStream(t *testing.T) {
	f := newFortress(t)
	subscribe := func(name string, expires time.Time) (events io.ReadCloser, err error) {
		_, text, err := f.ring.Create(t.Context(), access.Token{Name: name, Grants: []access.Grant{{Scopes: access.Read, Queues: []string{"*"}}}, ExpiresAt: expires})
		if err != nil {
			return nil, err
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.web.URL+"/v1/events", nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+text)
		answer, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if answer.StatusCode != http.StatusOK {
			answer.Body.Close()
			return nil, errors.New(answer.Status)
		}
		return answer.Body, nil
	}
	for _, how := range []string{"revoked", "expired"} {
		var events io.ReadCloser
		err := errors.New("not yet")
		if how == "revoked" {
			events, err = subscribe(how, time.Time{})
		}
		// On a stalled machine a token may expire before the subscription begins.
		for life := time.Second; how == "expired" && err != nil && life < time.Minute; life *= 4 {
			events, err = subscribe(fmt.Sprint(how, life), time.Now().Add(life))
		}
		if err != nil {
			t.Fatal(err)
		}
		defer events.Close()
		if how == "revoked" {
			if _, err := f.ring.Revoke(t.Context(), how); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		said, err := io.ReadAll(events)
		if took := time.Since(began); err != nil || took > 2*time.Minute || !strings.Contains(string(said), "the token is no longer valid") {
			t.Errorf("%s: after %v %q, %v", how, took, said, err)
		}
	}
}

// overseen are metrics that only check access.
type overseen func(ctx context.Context) error

func (o overseen) Write(ctx context.Context, w io.Writer) error {
	if err := o(ctx); err != nil {
		return err
	}
	_, err := io.WriteString(w, "# nothing\n")
	return err
}
