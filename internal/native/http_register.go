package native

import (
	"cmp"
	"context"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/openapi"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// smallBody is enough for what has no payload.
const smallBody = 256 << 10

// none stands for no parameters or no body.
type none struct{}

// route is an operation of the API.
type route struct {
	method, path string
	id           string
	tag          string
	summary      string
	description  string
	status       int            // 200 unless given
	large        bool           // the body may carry payloads
	optional     bool           // there may be no body
	ndjson       bool           // the answer is a line per event
	open         bool           // needs no token
	also         map[int]string // further statuses, with the same answer
}

// register adds an operation: I are its parameters, B its body, O its answer.
// huma finds the parameters and describes all three; what is wrong with them is
// found here, so that every error has the same form.
func register[I, B, O any](h *HTTP, r route, f func(ctx context.Context, in *I, body *B) (*O, error)) {
	hasBody := reflect.TypeFor[B]() != reflect.TypeFor[none]()
	known := queryNames(reflect.TypeFor[I]())
	huma.Register(h.api, h.operation(r), func(ctx context.Context, in *I) (*O, error) {
		c := callOf(ctx)
		if err := checkQuery(c.r, known); err != nil {
			return nil, h.problem(ctx, err)
		}
		body := new(B)
		if hasBody {
			if err := h.decode(c, r, body); err != nil {
				return nil, h.problem(ctx, err)
			}
		}
		out, err := f(ctx, in, body)
		if err != nil {
			return nil, h.problem(ctx, err)
		}
		return out, nil
	})
	if hasBody {
		// Not before: huma would read the body itself.
		h.described(r).RequestBody = &huma.RequestBody{
			Required: !r.optional,
			Content:  map[string]*huma.MediaType{"application/json": {Schema: h.schema(reflect.TypeFor[B]())}},
		}
	}
	op := h.described(r)
	for status := range r.also { // has the same form as the usual answer
		also, usual := op.Responses[strconv.Itoa(status)], op.Responses[strconv.Itoa(cmp.Or(r.status, http.StatusOK))]
		also.Content, also.Headers = usual.Content, usual.Headers
	}
}

// described is an operation as it stands in the description of the API.
func (h *HTTP) described(r route) *huma.Operation {
	item := h.api.OpenAPI().Paths[r.path]
	for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
		if op != nil && op.Method == r.method {
			return op
		}
	}
	panic("native: " + r.id + " is not described") // a defect, found by any test
}

func (h *HTTP) operation(r route) huma.Operation {
	op := huma.Operation{
		Method: r.method, Path: r.path, OperationID: r.id, Tags: []string{r.tag},
		Summary: r.summary, Description: r.description, DefaultStatus: r.status,
		SkipValidateParams: true, SkipValidateBody: true,
		Responses: h.refusals(),
	}
	if r.ndjson {
		// Generated clients that go by "json" in the content type would take the answer
		// for the default one.
		op.Responses["4XX"], op.Responses["5XX"] = op.Responses["default"], op.Responses["default"]
		delete(op.Responses, "default")
		op.Responses["200"] = &huma.Response{
			Description: "One event a line.",
			Content: map[string]*huma.MediaType{
				"application/x-ndjson": {Schema: openapi.Lines("One Event as JSON a line.", h.schema(reflect.TypeFor[wire.Event]()))},
			},
		}
	}
	if r.open {
		openapi.Open(&op)
	}
	for status, text := range r.also {
		op.Responses[strconv.Itoa(status)] = &huma.Response{Description: text}
	}
	return op
}

// refusals are how any operation can end that does not succeed.
func (h *HTTP) refusals() map[string]*huma.Response {
	all := map[string]*huma.Response{}
	for status, text := range map[string]string{
		"400":     "The request is wrong in itself; faults names every field.",
		"401":     "A valid token is required.",
		"403":     "The token does not allow this.",
		"default": "What else went wrong: RFC 9457 with a stable code.",
	} {
		all[status] = &huma.Response{
			Description: text,
			Content: map[string]*huma.MediaType{
				"application/problem+json": {Schema: h.schema(reflect.TypeFor[wire.Problem]())},
			},
		}
	}
	return all
}

// decode reads the body of a request.
func (h *HTTP) decode(c *call, r route, into any) error {
	most := int64(smallBody)
	if r.large {
		most = h.options.MaxBody
	}
	// Nothing is unpacked here, so that nothing small can become large.
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return wire.NewProblem(http.StatusUnsupportedMediaType, "unsupported_encoding",
			fmt.Sprintf("the content encoding %.100q is not taken here; send the body as it is", encoding))
	}
	data, err := h.readBody(c, most)
	if err != nil {
		return err
	}
	if len(data) == 0 && r.optional {
		return nil
	}
	if err := checkContentType(c.r.Header.Get("Content-Type")); err != nil {
		return err
	}
	return wire.DecodeJSON(data, into)
}

// checkContentType refuses what says that it is something else than JSON. What
// curl says by default is taken for JSON.
func checkContentType(text string) error {
	if text == "" {
		return nil
	}
	name, parameters, err := mime.ParseMediaType(text)
	charset := strings.ToLower(parameters["charset"])
	switch {
	case err != nil:
	case charset != "" && charset != "utf-8":
	case name == "application/json", strings.HasSuffix(name, "+json"), name == "application/x-www-form-urlencoded":
		return nil
	}
	return wire.NewProblem(http.StatusUnsupportedMediaType, "unsupported_media_type",
		fmt.Sprintf("%.100q is not taken here; send application/json in UTF-8", text))
}

// queryNames are the query parameters of an operation.
func queryNames(t reflect.Type) map[string]bool {
	names := map[string]bool{}
	for _, f := range reflect.VisibleFields(t) {
		if name := f.Tag.Get("query"); name != "" {
			name, _, _ = strings.Cut(name, ",")
			names[name] = true
		}
	}
	return names
}

// listParameters may be given more than once.
var listParameters = map[string]bool{"state": true, "include": true, "type": true, "tag": true}

func checkQuery(r *http.Request, known map[string]bool) error {
	values, err := url.ParseQuery(r.URL.RawQuery)
	var faults []gq.Fault
	if err != nil {
		faults = append(faults, gq.Fault{Field: "query", Problem: "is not well-formed"})
	}
	for name, given := range values {
		switch {
		case !known[name]:
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("%.64s", strings.ToValidUTF8(name, "?")), Problem: "is not a parameter of this operation"})
		case len(given) > 1 && !listParameters[name]:
			faults = append(faults, gq.Fault{Field: name, Problem: "is given twice"})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// parameters reads parameters and gathers what is wrong with them.
type parameters struct{ faults []gq.Fault }

func (p *parameters) fault(field, format string, args ...any) {
	p.faults = append(p.faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (p *parameters) err() error {
	if len(p.faults) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: p.faults}
}

func (p *parameters) jobID(text string) gq.JobID {
	id, err := machine.ParseJobID(text)
	p.faults = append(p.faults, errs.FaultsOf(err)...)
	return id
}

func (p *parameters) count(field string, text countText, most int) int {
	if text == "" {
		return 0
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || n > most {
		p.fault(field, "%.64q is not a number from 1 to %d", string(text), most)
	}
	return n
}

func (p *parameters) duration(field string, text durationText, most time.Duration) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(string(text))
	if err != nil {
		p.fault(field, `%.64q is not a duration such as "30s"`, string(text))
	} else if d < 0 || d > most {
		p.fault(field, "%v is not between 0s and %v", d, most)
	}
	return d
}

func (p *parameters) instant(field string, text instantText) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		p.fault(field, `%.64q is not an instant such as "2030-01-31T12:00:00Z"`, string(text))
	}
	return t.UTC()
}

func (p *parameters) boolean(field string, text boolText, otherwise bool) bool {
	switch text {
	case "":
		return otherwise
	case "true", "false":
		return text == "true"
	}
	p.fault(field, "%.64q is not true or false", string(text))
	return false
}

// list are the values of a parameter that may be repeated or have commas.
func (p *parameters) list(r *http.Request, name string) (all []string) {
	for _, text := range r.URL.Query()[name] {
		all = append(all, strings.Split(text, ",")...)
	}
	return all
}

func (p *parameters) statuses(r *http.Request) (all []gq.Status) {
	for _, name := range p.list(r, "state") {
		s, err := enum.Parse[gq.Status](name)
		p.faults = append(p.faults, errs.FaultsOf(err)...)
		all = append(all, s)
	}
	return all
}

// tags are labels that jobs must have, each as name=value.
func (p *parameters) tags(r *http.Request) (tags map[string]string) {
	for _, text := range r.URL.Query()["tag"] {
		name, value, ok := strings.Cut(text, "=")
		if _, twice := tags[name]; !ok || name == "" {
			p.fault("tag", "%.64q is not name=value", text)
		} else if twice {
			p.fault("tag", "%.64q is asked for with two values", name)
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[name] = value
	}
	return tags
}
