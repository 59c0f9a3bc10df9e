package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"go/format"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/faces/native"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/worker"
)

// gatePaths are what most jobs pass through.
func gatePaths() []gatePath {
	return []gatePath{
		{"cycle", 300, gateCycle, storeFloor},
		{"worker", 200, gateWorker, storeFloor},
		{"http submit", 100, gateHTTP, storeFloor},
		{"codec", 2000, gateCodec, codeFloor},
		{"wire", 700, gateWire, codeFloor},
		{"match", 6, gateMatch, codeFloor},
	}
}

// codeFloor is work that no change of this module makes faster or slower, and of the kind
// that codecs and matching do: it hashes, encodes, decodes, parses and allocates.
func codeFloor(t *testing.T, _ int) func() {
	return func() { codeFloorWork(t) }
}

func codeFloorWork(t *testing.T) {
	t.Helper()
	var sum [sha256.Size]byte
	for i := range 5000 {
		binary.BigEndian.PutUint64(sum[:], uint64(i))
		sum = sha256.Sum256(sum[:])
	}
	type document struct {
		Name string
		Time time.Time
		Tags map[string]string
		List []int
	}
	for i := range 250 {
		text, err := json.Marshal(document{fmt.Sprint(i), time.Unix(int64(i), 0), map[string]string{"a": "b", "c": "d"}, []int{1, 2, 3}})
		if err != nil {
			t.Fatal(err)
		}
		var back document
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
	}
	var source strings.Builder
	source.WriteString("package p\n")
	for i := range 60 {
		fmt.Fprintf(&source, "\n// f%d adds.\nfunc f%d(a,b int)(sum int){\nfor i:=range a{if i>b{return sum+i*%d}\nsum+=i}\nreturn sum}\n", i, i, i)
	}
	if _, err := format.Source([]byte(source.String())); err != nil {
		t.Fatal(err)
	}
}

// storeFloor is likewise for stores: it builds a tree, writes batches to a bare database
// and lets goroutines wait for each other.
func storeFloor(t *testing.T, _ int) func() {
	t.Helper()
	db, err := pebble.Open("floor", &pebble.Options{FS: vfs.NewMem(), Logger: silent{}, MemTableSize: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return func() {
		random := rand.NewPCG(1, 2)
		growTree(random)
		for range 40 {
			if err := writeBatch(db, random); err != nil {
				t.Fatal(err)
			}
		}
		handOver(32, 2400)
	}
}

func growTree(random *rand.PCG) {
	type node struct {
		key         uint64
		left, right *node
		value       []byte
	}
	var root *node
	for range 7500 {
		key, at := random.Uint64(), &root
		for *at != nil {
			if key < (*at).key {
				at = &(*at).left
			} else {
				at = &(*at).right
			}
		}
		*at = &node{key: key, value: make([]byte, 128)}
	}
}

func writeBatch(db *pebble.DB, random *rand.PCG) error {
	batch := db.NewBatch()
	for range 30 {
		var key [24]byte
		var value [120]byte
		for i := 0; i < len(key); i += 8 {
			binary.BigEndian.PutUint64(key[i:], random.Uint64())
			binary.BigEndian.PutUint64(value[i:], random.Uint64())
		}
		if err := batch.Set(key[:], value[:], nil); err != nil {
			return err
		}
	}
	return errors.Join(batch.Commit(pebble.Sync), batch.Close())
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(string, ...any) {}

// handOver lets callers wait for answers from one goroutine.
func handOver(callers, calls int) {
	requests := make(chan chan []byte, callers)
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			answer := make(chan []byte)
			for range calls / callers {
				requests <- answer
				<-answer
			}
		})
	}
	go func() {
		wg.Wait()
		close(requests)
	}()
	for answer := range requests {
		answer <- make([]byte, 256)
	}
}

func gateStore(t *testing.T) store.Store {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// gateCycle submits, claims and completes through the store alone, in batches. There is
// one caller: how many calls of several share a commit depends on how busy the machine is.
func gateCycle(t *testing.T, jobs int) func() {
	const batch = 100
	s := gateStore(t)
	c := newCaller(s, new(calls), plainJob(), 100, batch)
	return func() {
		for range jobs / batch {
			if err := c.cycle(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// gateWorker submits jobs one by one, which a worker runs.
func gateWorker(t *testing.T, jobs int) func() {
	const callers = 32
	s := gateStore(t)
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(e, worker.Config{
		Slots: callers, QueueSets: []worker.QueueSet{{Queues: []string{queueName}}}, Logger: slog.New(slog.DiscardHandler),
	})
	var left atomic.Int64
	ended := make(chan struct{}, 1)
	w.HandleFunc("bench", func(context.Context, *worker.Run) error {
		if left.Add(-1) == 0 {
			ended <- struct{}{}
		}
		return nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context())) // cleaning up ends it
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) })
	wg.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return func() {
		left.Store(int64(jobs))
		q := newQuota(jobs, 0, nil)
		_, err := together(ctx, callers, func() {}, func() func(context.Context) error {
			spec := plainJob()
			spec.Payload.Data = make([]byte, 100)
			return func(ctx context.Context) error {
				for q.take(1) > 0 {
					if _, err := e.Submit(ctx, spec); err != nil {
						return err
					}
				}
				return nil
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		<-ended
	}
}

// gateHTTP submits over the native HTTP face, without sockets.
func gateHTTP(t *testing.T, jobs int) func() {
	s := gateStore(t)
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := native.NewHTTP(e, native.HTTPOptions{})
	body := fmt.Sprintf(`{"type":"bench","queue":"bench","payload":{"text":%q},"tags":{"a":"b"}}`, strings.Repeat("x", 100))
	t.Cleanup(h.Drain)
	return func() {
		for range jobs {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/jobs", strings.NewReader(body))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusCreated {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
		}
	}
}

// gateJob returns a job that a worker holds.
func gateJob(t *testing.T) gq.Job {
	t.Helper()
	s := gateStore(t)
	spec := plainJob()
	spec.Metadata.Tags = map[string]string{"customer": "4711", "region": "eu"}
	c := newCaller(s, new(calls), spec, 100, 1)
	if err := c.enqueue(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	jobs, err := c.claim(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	return jobs[0]
}

// gateCodec encodes and decodes what stores keep of a job.
func gateCodec(t *testing.T, jobs int) func() {
	j := gateJob(t)
	intern := func(p gq.Policy) *gq.Policy { return &p }
	return func() {
		var buffer []byte
		for range jobs {
			spec, err := codec.AppendSpec(&j.Spec, buffer[:0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := codec.DecodeSpec(spec); err != nil {
				t.Fatal(err)
			}
			state, err := codec.AppendState(&j.State, spec[:0])
			if err != nil {
				t.Fatal(err)
			}
			if _, err := codec.DecodeState(state, j.State.Sequence, intern); err != nil {
				t.Fatal(err)
			}
			buffer = state
		}
	}
}

// gateWire encodes and decodes a job as clients and servers do over gRPC.
func gateWire(t *testing.T, jobs int) func() {
	j := gateJob(t)
	return func() {
		for range jobs {
			text, err := proto.Marshal(pbconv.ProtoJob(&j))
			if err != nil {
				t.Fatal(err)
			}
			var m pb.Job
			if err := proto.Unmarshal(text, &m); err != nil {
				t.Fatal(err)
			}
			back, err := pbconv.JobFromProto(&m)
			if err != nil || !bytes.Equal(back.Spec.Payload.Data, j.Spec.Payload.Data) {
				t.Fatalf("%v", err)
			}
		}
	}
}

// gateMatch runs rounds of 256 jobs and 1,000 providers.
func gateMatch(t *testing.T, rounds int) func() {
	const now, models = 1_800_000_000, 10
	in := match.Input{Chain: "bench", Epoch: 42, Height: 1000, Beacon: match.Hex{1, 2, 3}, Now: now, Policy: match.DefaultPolicy()}
	in.Policy.BatchSize = 256
	for i := range 1000 {
		p := match.Provider{
			ID: fmt.Sprintf("provider-%06d", i), Status: match.Active, Capabilities: []match.Kind{match.AI}, Precisions: []string{"fp16"},
			Region: []string{"eu", "us", "ap"}[i%3], Stake: 5000, AttestationExpiresAt: now + 1, Health: 500_000_000, LastHeartbeatAt: now - 30,
		}
		for k := range 4 {
			p.Models = append(p.Models, fmt.Sprintf("model-%d", (i*7+k)%models))
		}
		in.Providers = append(in.Providers, p)
	}
	for i := range 256 {
		in.Jobs = append(in.Jobs, match.Job{
			ID: fmt.Sprintf("3f0c5e5a-0000-4000-8000-%012d", i), Kind: match.AI, Requester: fmt.Sprintf("requester-%d", i%50), EnqueuedAt: now - int64(i),
			Units: 10, MaxFee: int64(i) * 1000, SizeBytes: 1 << 10, Spec: match.Demand{Model: fmt.Sprintf("model-%d", i%models), Precision: "fp16"},
		})
	}
	return func() {
		for range rounds {
			if out, err := match.Match(&in); err != nil || len(out.Assignments) == 0 {
				t.Fatalf("%d assignments: %v", len(out.Assignments), err)
			}
		}
	}
}
