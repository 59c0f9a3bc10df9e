package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gopherqueue/gq"
)

// Handler runs one execution of a job. What it returns is the verdict on it.
type Handler func(ctx context.Context, run *Run) error

// Middleware wraps a handler.
type Middleware func(next Handler) Handler

// mux finds the handler of a job by its type. Faults of registration (no type, no
// handler, a type that has one already) are kept until the worker runs.
type mux struct {
	handlers   map[string]Handler
	queues     []string // of the kinds, in the order of their registration
	middleware []Middleware
	faults     []gq.Fault
	sealed     bool
}

// Use puts middleware around every handler, whether it is registered already or
// not. The first one is outermost.
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

// HandleFunc registers a handler for a job type that reads the payload itself, from
// [gq.DefaultQueue] unless the configuration names queues.
func (m *mux) HandleFunc(typ string, h Handler) { m.handle(typ, gq.DefaultQueue, h) }

func (m *mux) handle(typ, queue string, h Handler) {
	m.open()
	field := fmt.Sprintf("handlers[%.64q]", typ)
	switch {
	case typ == "":
		m.fault("handlers", "a handler has no job type")
	case len(typ) > gq.MaxNameBytes:
		m.fault(field, fmt.Sprintf("%d bytes are more than %d", len(typ), gq.MaxNameBytes))
	case h == nil:
		m.fault(field, "is nil")
	case m.handlers[typ] != nil:
		m.fault(field, "is registered twice")
	default:
		if m.handlers == nil {
			m.handlers = make(map[string]Handler)
		}
		m.handlers[typ] = h
		if !slices.Contains(m.queues, queue) {
			m.queues = append(m.queues, queue)
		}
	}
}

func (m *mux) open() {
	if m.sealed {
		panic("gq/worker: the worker runs already: register handlers before")
	}
}

func (m *mux) fault(field, problem string) {
	m.faults = append(m.faults, gq.Fault{Field: field, Problem: problem})
}

// seal ends registration. It returns the handlers in their middleware.
func (m *mux) seal() (handlers map[string]Handler, types []string) {
	m.sealed = true
	handlers = make(map[string]Handler, len(m.handlers))
	for typ, h := range m.handlers {
		for _, mw := range slices.Backward(m.middleware) {
			h = mw(h)
		}
		handlers[typ] = h
	}
	return handlers, slices.Sorted(maps.Keys(handlers))
}

// Job is one execution of a job whose payload has been decoded into Args.
type Job[T any] struct {
	*Run
	Args T
}

// Registry is what handlers are registered with: a [Worker].
type Registry interface {
	handle(typ, queue string, h Handler)
}

// Handle registers the handler of a kind of job. Members of the payload that its
// arguments do not have are ignored.
func Handle[A, R any](to Registry, k gq.Kind[A, R], f func(ctx context.Context, job *Job[A]) error) {
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

// HandleResult registers the handler of a kind of job that has a result, which is kept
// as [Run.SetResult] does.
func HandleResult[A, R any](to Registry, k gq.Kind[A, R], f func(ctx context.Context, job *Job[A]) (R, error)) {
	if f == nil {
		to.handle(k.Name(), k.Queue(), nil)
		return
	}
	Handle(to, k, func(ctx context.Context, job *Job[A]) error {
		result, err := f(ctx, job)
		if err != nil {
			return err
		}
		return job.SetResult(result)
	})
}

// decode reads a payload. The errors quote nothing of it.
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
		problem = fmt.Sprintf("it is not JSON from byte %d on", e.Offset)
	} else if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		problem = fmt.Sprintf("the value at byte %d does not fit %s, a %s", e.Offset, orRoot(e.Field), e.Type)
	}
	return &gq.PermanentError{Message: "decode the payload: " + problem, Code: "invalid_payload"}
}

func orRoot(field string) string {
	if field == "" {
		return "the whole"
	}
	return field
}

// encode is the form in which a result is kept.
func encode(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case json.RawMessage:
		return v, nil
	}
	data, err := json.Marshal(v)
	if err != nil {
		return nil, &gq.PermanentError{Message: "encode the result", Cause: err, Code: "invalid_result"}
	}
	return data, nil
}
