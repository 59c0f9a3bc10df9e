package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
)

// Handler runs one execution of a job. Its error decides how the attempt ends.
type Handler func(ctx context.Context, run *Run) error

// Middleware wraps a handler: it can change what the handler reads ([Run.SetPayload]) and its
// result ([Run.Result], [Run.SetResult]), replace its error, or not call it at all. A panic fails
// the attempt like one of the handler. Middleware around submissions is [gq.Middleware].
type Middleware func(next Handler) Handler

// mux finds the handler of a job by its type. It keeps faults of registration (no type, no
// handler, a second handler for a type) until Run reports them.
type mux struct {
	handlers   map[string]Handler
	gathered   map[string]int // types for handlers of many jobs, and the most jobs of a call
	queues     []string       // of the handlers, in order of registration
	kinds      []kindQueue    // of the kinds, whose jobs go to known queues
	middleware []Middleware
	faults     []gq.Fault
	sealed     bool
}

// kindQueue is where the jobs of a kind go unless a submission says otherwise.
type kindQueue struct{ typ, queue string }

// Use wraps every handler in middleware, including handlers that are already registered. The
// first middleware is the outermost.
func (m *mux) Use(middleware ...Middleware) {
	m.open()
	for _, mw := range middleware {
		if mw == nil {
			m.fault("middleware", "is nil")
			continue
		}
		m.middleware = append(m.middleware, mw)
	}
}

// HandleFunc registers a handler for a job type that decodes the payload itself. The worker
// claims such jobs from [gq.DefaultQueue] unless Config.QueueSets names other queues.
func (m *mux) HandleFunc(typ string, h Handler) { m.handle(typ, "", h) }

// handle registers a handler. The queue is that of the kind; empty if only the type is known.
func (m *mux) handle(typ, queue string, h Handler) {
	m.open()
	field := fmt.Sprintf("handlers[%.64q]", typ)
	switch {
	case typ == "":
		m.fault("handlers", "a handler has no job type")
	case len(typ) > gq.MaxNameBytes:
		m.fault(field, fmt.Sprintf("has %d bytes; the limit is %d", len(typ), gq.MaxNameBytes))
	case h == nil:
		m.fault(field, "is nil")
	case m.handlers[typ] != nil:
		m.fault(field, "is registered twice")
	default:
		if m.handlers == nil {
			m.handlers = make(map[string]Handler)
		}
		m.handlers[typ] = h
		if queue != "" {
			m.kinds = append(m.kinds, kindQueue{typ, queue})
		}
		queue = cmp.Or(queue, gq.DefaultQueue)
		if !slices.Contains(m.queues, queue) {
			m.queues = append(m.queues, queue)
		}
	}
}

// gathers makes the handler of a type one of up to n jobs.
func (m *mux) gathers(typ string, n int) {
	if m.gathered == nil {
		m.gathered = make(map[string]int)
	}
	m.gathered[typ] = n
}

// split returns the types with ordinary handlers, those with handlers of many jobs, and how many
// jobs fill a call of each of these.
func (m *mux) split(types []string) (single, many []string, room int) {
	for _, typ := range types {
		if n := m.gathered[typ]; n > 0 {
			many = append(many, typ)
			room += n
		} else {
			single = append(single, typ)
		}
	}
	return single, many, room
}

func (m *mux) open() {
	if m.sealed {
		panic("gq/worker: register handlers before Run")
	}
}

func (m *mux) fault(field, problem string) {
	m.faults = append(m.faults, gq.Fault{Field: field, Problem: problem})
}

// seal ends registration and returns the handlers wrapped in their middleware.
func (m *mux) seal() (handlers map[string]Handler, types []string) {
	m.sealed = true
	handlers = make(map[string]Handler, len(m.handlers))
	for typ, h := range m.handlers {
		for i, mw := range slices.Backward(m.middleware) {
			if h = mw(h); h == nil {
				m.fault(fmt.Sprintf("middleware[%d]", i), fmt.Sprintf("returned no handler for %.64q", typ))
				break
			}
		}
		handlers[typ] = h
	}
	return handlers, slices.Sorted(maps.Keys(handlers))
}

// Job is one execution of a job with its decoded arguments.
type Job[T any] struct {
	*Run
	Args T
}

// Registry registers handlers. [Worker] implements it.
type Registry interface {
	handle(typ, queue string, h Handler)
	gathers(typ string, n int)
	fault(field, problem string)
}

// Handle registers the handler of a kind of job without a result. It ignores members of the
// payload that the argument type does not have.
func Handle[A any](to Registry, k gq.Kind[A, gq.None], f func(ctx context.Context, job *Job[A]) error) {
	handle(to, k, f)
}

// HandleResult registers the handler of a kind of job with a result, which the handler returns.
func HandleResult[A, R any](to Registry, k gq.Kind[A, R], f func(ctx context.Context, job *Job[A]) (R, error)) {
	if f == nil {
		handle(to, k, nil)
		return
	}
	handle(to, k, func(ctx context.Context, job *Job[A]) error {
		result, err := f(ctx, job)
		if err != nil {
			return err
		}
		return job.SetResult(result)
	})
}

func handle[A, R any](to Registry, k gq.Kind[A, R], f func(ctx context.Context, job *Job[A]) error) {
	if f == nil {
		to.handle(k.Name(), k.Queue(), nil)
		return
	}
	to.handle(k.Name(), k.Queue(), func(ctx context.Context, run *Run) error {
		job := &Job[A]{Run: run}
		if err := decode(run.job.Spec.Payload.Data, &job.Args); err != nil {
			return err
		}
		return f(ctx, job)
	})
}

// decode decodes a payload. Its errors do not quote the payload.
func decode(data []byte, into any) error {
	switch v := into.(type) {
	case *gq.None:
		return nil
	case *[]byte:
		*v = data
		return nil
	case *json.RawMessage:
		*v = data
		return nil
	}
	err := json.Unmarshal(data, into)
	if err == nil {
		return nil
	}
	problem := err.Error()
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		problem = fmt.Sprintf("it is malformed JSON at byte %d", e.Offset)
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		found, _, _ := strings.Cut(e.Value, " ") // the rest would be a number of the payload
		problem = fmt.Sprintf("%s is a JSON %s (byte %d); the handler takes %s", cmp.Or(e.Field, "it"), found, e.Offset, e.Type)
	}
	return &gq.PermanentError{Message: "the payload does not fit the handler: " + problem, Code: "invalid_payload"}
}

// encode returns the stored form of a result.
func encode(v any) ([]byte, error) {
	data, err := gq.Encode(v)
	if err != nil {
		return nil, &gq.PermanentError{Message: "encode the result", Cause: err, Code: "invalid_result"}
	}
	return data, nil
}
