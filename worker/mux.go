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

// Mux finds the handler of a job by its type. It is filled first, from one
// goroutine, and then given to [New]; any number of workers may share it.
//
// Faults of registration (no type, no handler, a type that has one already) are
// kept and reported by New, all at once. Registering after New is a mistake in
// the program and panics: no worker would ever claim such a job.
type Mux struct {
	handlers   map[string]Handler
	middleware []Middleware
	faults     []gq.Fault
	sealed     bool
}

// NewMux is a mux without handlers.
func NewMux() *Mux { return &Mux{handlers: make(map[string]Handler)} }

// Use puts middleware around every handler, whether it is registered already or
// not. The first one is outermost.
func (m *Mux) Use(middleware ...Middleware) {
	m.open()
	for _, mw := range middleware {
		if mw == nil {
			m.fault("middleware", "is nil")
			continue
		}
		m.middleware = append(m.middleware, mw)
	}
}

// HandleFunc registers a handler that reads the payload itself.
func (m *Mux) HandleFunc(typ string, h Handler) {
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
		m.handlers[typ] = h
	}
}

func (m *Mux) open() {
	if m.sealed {
		panic("gq/worker: the mux is in use: register handlers before worker.New")
	}
}

func (m *Mux) fault(field, problem string) {
	m.faults = append(m.faults, gq.Fault{Field: field, Problem: problem})
}

// seal ends registration. It returns the handlers in their middleware.
func (m *Mux) seal() (handlers map[string]Handler, types []string) {
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

// Handle registers a handler whose payload is the JSON of a T. A []byte or
// [json.RawMessage] gets the payload as it is. Unknown members are ignored.
func Handle[T any](m *Mux, typ string, f func(ctx context.Context, job *Job[T]) error) {
	if f == nil {
		m.HandleFunc(typ, nil)
		return
	}
	m.HandleFunc(typ, func(ctx context.Context, run *Run) error {
		job := &Job[T]{Run: run}
		if err := decode(run.job.Spec.Payload.Data, &job.Args); err != nil {
			return err
		}
		return f(ctx, job)
	})
}

// HandleResult registers a handler that returns the job's result, which is kept
// as [Run.SetResult] does.
func HandleResult[T, R any](m *Mux, typ string, f func(ctx context.Context, job *Job[T]) (R, error)) {
	if f == nil {
		m.HandleFunc(typ, nil)
		return
	}
	Handle(m, typ, func(ctx context.Context, job *Job[T]) error {
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
