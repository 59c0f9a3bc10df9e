package worker

import (
	"bytes"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/errs"
)

// SnoozeError is the error of a handler that postpones its job.
type SnoozeError struct{ Delay time.Duration }

func (e *SnoozeError) Error() string { return fmt.Sprintf("snooze for %v", e.Delay) }

// Snooze returns an error that postpones the job by d without using up an attempt. Only the
// job's lifetime limits how often it can snooze.
func Snooze(d time.Duration) error { return &SnoozeError{min(max(d, 0), gq.MaxDuration)} }

// CancelError is the error of a handler that cancels its job.
type CancelError struct{ Reason string }

func (e *CancelError) Error() string { return "cancelled: " + e.Reason }

// Cancel returns an error that cancels the job.
func Cancel(reason string) error { return &CancelError{reason} }

// isVerdict reports whether an error states how the attempt ends.
func isVerdict(err error) bool {
	for _, is := range []func(error) bool{
		has[*gq.TemporaryError], has[*gq.PermanentError], has[*SnoozeError], has[*CancelError], has[*panicError],
	} {
		if is(err) {
			return true
		}
	}
	return false
}

func has[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// panicError is the error of a handler that panicked or exited its goroutine.
type panicError struct {
	code  string
	value string
	stack []byte
}

func (e *panicError) Error() string { return e.value + "\n\n" + string(e.stack) }

func panicked(value any) *panicError {
	return &panicError{code: "panic", value: fmt.Sprintf("panic: %v", value), stack: trimStack(debug.Stack())}
}

// errExited is the error of a handler that exited its goroutine.
var errExited = &panicError{code: "goexit", value: "the handler called runtime.Goexit"}

// trimStack removes the frames above the panic, because a failure keeps only the beginning of
// its message.
func trimStack(stack []byte) []byte {
	if i := bytes.Index(stack, []byte("\npanic(")); i >= 0 {
		for range 3 { // the line before, the call and its position
			j := bytes.IndexByte(stack[i:], '\n')
			if j < 0 {
				return stack
			}
			i += j + 1
		}
		return stack[i:]
	}
	return stack
}

// judge converts the error of a handler, and the cause if its context ended, into the outcome.
func (w *Worker) judge(r *Run, e ended, err error) gq.Outcome {
	cause := e.cause
	o := gq.Outcome{Lease: r.ref, Verdict: gq.VerdictFail}
	switch {
	case errors.Is(cause, ErrExecutionTimeout):
		o.Failure = gq.Failure{Category: gq.CategoryTimeout, Code: "execution_timeout", Message: timeoutText(r, err)}
	case err == nil:
		o = w.complete(r, e)
	case has[*panicError](err):
		p, _ := errors.AsType[*panicError](err)
		o.Failure = gq.Failure{Category: gq.CategorySystem, Code: p.code, Message: clip(p.Error())}
	case has[*SnoozeError](err):
		s, _ := errors.AsType[*SnoozeError](err)
		o.Verdict, o.Delay, o.Reason = gq.VerdictRelease, min(max(s.Delay, 0), gq.MaxDuration), "snoozed"
	case has[*CancelError](err):
		c, _ := errors.AsType[*CancelError](err)
		o.Failure = gq.Failure{Category: gq.CategoryCancelled, Code: "cancelled", Message: clip(c.Reason)}
	case errors.Is(cause, ErrCancelRequested):
		o.Failure = gq.Failure{Category: gq.CategoryCancelled, Code: "cancel_requested", Message: classify.Error(err).Message}
	case errors.Is(cause, ErrDraining) && !isVerdict(err):
		o.Verdict, o.Reason = gq.VerdictRelease, ErrDraining.Error()
	default:
		o.Failure = w.classify(r, err)
	}
	return o
}

func timeoutText(r *Run, err error) string {
	text := fmt.Sprintf("the handler ran longer than %v", r.policy.ExecutionTimeout)
	if err != nil {
		text += ": " + classify.Error(err).Message
	}
	return clip(text)
}

// classify calls Config.Classify. If there is none, or if it panics or returns no category, the
// job's policy selects the classifier.
func (w *Worker) classify(r *Run, err error) (f gq.Failure) {
	standard := classify.Error
	if r.policy.Preset == gq.PresetResilient {
		standard = classify.Verdict
	}
	if w.config.Classify == nil {
		return standard(err)
	}
	defer func() {
		if p := recover(); p != nil || !f.Category.Valid() {
			f = standard(err)
		}
	}()
	return w.config.Classify(err)
}

func failing(r *Run, f gq.Failure) gq.Outcome {
	return gq.Outcome{Lease: r.ref, Verdict: gq.VerdictFail, Failure: f}
}

func resultTooLarge(n int) gq.Failure {
	return gq.Failure{
		Category: gq.CategoryPermanent, Code: "result_too_large",
		Message: fmt.Sprintf("the result of %d bytes is larger than the queue accepts", n),
	}
}

// refused returns the failure that replaces a success that the queue rejected.
func refused(o gq.Outcome, err error) gq.Failure {
	if errs.KindOf(err) != gq.KindInvalid {
		return classify.Error(err)
	}
	faults := errs.FaultsOf(err)
	for _, f := range faults {
		if f.Field == "result" {
			return resultTooLarge(len(o.Result))
		}
	}
	f := gq.Failure{Category: gq.CategoryPermanent, Code: "invalid_outcome", Message: clip(err.Error())}
	if len(o.Spawn) > 0 {
		f.Code = "invalid_spawn"
	}
	return f
}

// clip truncates a text to the size limit of a failure's message.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), gq.MaxMessageBytes)], "")
}
