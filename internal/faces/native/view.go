package native

import (
	"bytes"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/feed"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/view/jobmodel"
)

// viewForm is the content type of an answer in a view. Generated clients keep the plain type of
// answers that are in none.
func viewForm(v *view.View) string { return "application/vnd.gopherqueue." + v.Name + "+json" }

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

// eventForms describes an event, as it is and in every view.
func eventForms(schemas *httpx.Schemas) *httpx.Schema {
	forms := []*httpx.Schema{schemas.Of(reflect.TypeFor[wire.Event]())}
	for _, v := range view.All() {
		forms = append(forms, schemas.Of(v.EventType))
	}
	return &httpx.Schema{OneOf: forms}
}

// timeouts returns the limits that a submission in the view of the job model gives its job.
func (p *parameters) timeouts(v *view.View, t *timeoutsBody) jobmodel.Timeouts {
	if t == nil {
		return jobmodel.Timeouts{}
	}
	return p.limits(v, (*time.Duration)(t.Execution), (*time.Duration)(t.Visibility), (*time.Duration)(t.Lifetime))
}

// limits checks the limits of a submission, nil for those that it does not have.
func (p *parameters) limits(v *view.View, execution, visibility, lifetime *time.Duration) (out jobmodel.Timeouts) {
	if v != view.JobModel {
		p.fault("timeouts", "is only accepted with view=jobmodel; without a view set policy")
		return out
	}
	for _, limit := range []struct {
		name  string
		given *time.Duration
		to    *jobmodel.Duration
	}{{"execution", execution, &out.Execution}, {"visibility", visibility, &out.Visibility}, {"lifetime", lifetime, &out.Lifetime}} {
		switch {
		case limit.given == nil:
		case *limit.given < 0, *limit.given == 0 && limit.name == "visibility":
			p.fault("timeouts."+limit.name, "%v is not above 0", *limit.given)
		case *limit.given == 0:
			*limit.to = jobmodel.Duration(gq.Unlimited)
		default:
			*limit.to = jobmodel.Duration(*limit.given)
		}
	}
	return out
}

// limitFaults names the limits that a submission gave in the words of the job model.
func limitFaults(given jobmodel.Timeouts, err error) error {
	faults := slices.Clone(errs.FaultsOf(err))
	if len(faults) == 0 || given == (jobmodel.Timeouts{}) {
		return err
	}
	for i := range faults {
		switch f := &faults[i].Field; {
		case *f == "policy.execution_timeout" && given.Execution != 0:
			*f = "timeouts.execution"
		case *f == "policy.lease_ttl" && given.Visibility != 0:
			*f = "timeouts.visibility"
		case *f == "policy.lifetime" && given.Lifetime != 0:
			*f = "timeouts.lifetime"
		}
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
