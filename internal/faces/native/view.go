package native

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

// viewForm is the content type of an answer in a view. Generated clients keep the plain type of
// answers that are in none.
func viewForm(v *view.View) string { return "application/vnd.gopherqueue." + v.Name + "+json" }

// copyInView returns a job in a view. It takes a copy, so that callers which also answer without a view
// do not allocate theirs.
func copyInView(v *view.View, job gq.Job) any { return v.Job(&job) }

// viewForms describes a job, or a page of jobs, in every view.
func viewForms(schemas *httpx.Schemas, page bool) httpx.Content {
	forms := httpx.Content{}
	for _, v := range view.All() {
		form := schemas.Of(v.JobType)
		if page {
			form = &httpx.Schema{Type: "object", AdditionalProperties: false, Required: []string{"jobs", "next_cursor"}, Properties: map[string]*httpx.Schema{
				"jobs": {Type: "array", Items: form}, "next_cursor": {Type: "string", Description: "Of the next page; empty on the last."},
			}}
		}
		forms[viewForm(v)] = httpx.MediaType{Schema: form}
	}
	return forms
}

// batchForms describes the answers to a batch in every view.
func batchForms(schemas *httpx.Schemas) httpx.Content {
	forms := httpx.Content{}
	for _, v := range view.All() {
		answer := &httpx.Schema{OneOf: []*httpx.Schema{schemas.Of(v.JobType), schemas.Of(reflect.TypeFor[wire.Refused]())}}
		forms[viewForm(v)] = httpx.MediaType{Schema: &httpx.Schema{
			Type: "object", AdditionalProperties: false, Required: []string{"jobs"}, Properties: map[string]*httpx.Schema{"jobs": {Type: "array", Items: answer}},
		}}
	}
	return forms
}

// eventForms describes an event, as it is and in every view.
func eventForms(schemas *httpx.Schemas) *httpx.Schema {
	forms := []*httpx.Schema{schemas.Of(reflect.TypeFor[wire.Event]())}
	for _, v := range view.All() {
		forms = append(forms, schemas.Of(v.EventType))
	}
	return &httpx.Schema{OneOf: forms}
}

// messageForms describes a message of a WebSocket: an event, in a view with its sequence number.
func messageForms(schemas *httpx.Schemas) *httpx.Schema {
	forms := eventForms(schemas)
	for i := 1; i < len(forms.OneOf); i++ { // those of the views
		form := *schemas.Named(forms.OneOf[i])
		form.Properties = maps.Clone(form.Properties)
		form.Properties["seq"] = &httpx.Schema{
			Type: "integer", Format: "int64", Minimum: new(0.0),
			Description: "Reading can resume after it. Of several messages of one event only the last has it.",
		}
		forms.OneOf[i] = &form
	}
	return forms
}

// limits are the timeouts of a request's jobs, by what their fields begin with in a fault.
type limits map[string]*wire.TimeoutsBody

// limitsOf returns those of a list of jobs.
func limitsOf[J any](jobs []J, of func(*J) *wire.TimeoutsBody) limits {
	l := limits{}
	for i := range jobs {
		if t := of(&jobs[i]); t != nil {
			l[fmt.Sprintf("jobs[%d].", i)] = t
		}
	}
	return l
}

// timeoutsAlone returns those of the only job of a request.
func timeoutsAlone(t *wire.TimeoutsBody) limits {
	if t == nil {
		return nil
	}
	return limits{"": t}
}

// named names the limits of the policy in an error as the request gave them.
func (l limits) named(err error) error {
	faults := slices.Clone(errs.FaultsOf(err))
	if len(faults) == 0 || len(l) == 0 {
		return err
	}
	for at, t := range l {
		t.Names(at, faults)
	}
	return &gq.InvalidError{Faults: faults}
}

// viewFrames encodes events as server-sent events named after the states. Only the last of
// several with one sequence number has it as its id, so that a client which resumes after an id
// misses none of them.
func viewFrames(v *view.View, events []gq.Event) []byte {
	var b bytes.Buffer
	all := v.History(events)
	for i, e := range all {
		if i+1 == len(all) || all[i+1].Seq != e.Seq {
			fmt.Fprintf(&b, "id: %d\n", e.Seq)
		}
		fmt.Fprintf(&b, "event: %s\ndata: ", e.State)
		_ = wire.EncodeJSON(&b, e.Shown) // a buffer takes everything
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// messages encodes the events of a batch one by one, in a view unless that is nil. A message in a
// view has the sequence number too, with which a client resumes: only the last of several with the
// same one, as in viewFrames.
func messages(v *view.View, b feed.Batch) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		if v == nil {
			for i := range b.Len() {
				if !yield(i, b.JSON(i)) {
					return
				}
			}
			return
		}
		all := v.History(b.Events())
		for i, e := range all {
			var text bytes.Buffer
			_ = wire.EncodeJSON(&text, e.Shown) // a buffer takes everything
			message := bytes.TrimSpace(text.Bytes())
			if i+1 == len(all) || all[i+1].Seq != e.Seq {
				message = append(fmt.Appendf(nil, `{"seq":%d,`, e.Seq), message[1:]...)
			}
			if !yield(i, message) {
				return
			}
		}
	}
}
