package httpx

import (
	"bytes"
	"cmp"
	"maps"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq/internal/wire"
)

// The parts of OpenAPI 3.1 that we use.
type (
	// Document is an OpenAPI document.
	Document struct {
		Components Components                       `json:"components"`
		Info       Info                             `json:"info"`
		OpenAPI    string                           `json:"openapi"`
		Paths      map[string]map[string]*Operation `json:"paths"` // by path, then by method in lower case
		Security   []map[string][]string            `json:"security"`
		Servers    []Server                         `json:"servers"`
		Tags       []Tag                            `json:"tags,omitempty"`
	}

	// Components are the reusable parts that the document refers to.
	Components struct {
		Schemas         map[string]*Schema        `json:"schemas"`
		SecuritySchemes map[string]SecurityScheme `json:"securitySchemes"`
	}

	// SecurityScheme is an authentication method.
	SecurityScheme struct {
		Description string `json:"description"`
		Scheme      string `json:"scheme"`
		Type        string `json:"type"`
	}

	// Info is the API's title, version and license.
	Info struct {
		Description string  `json:"description"`
		License     License `json:"license"`
		Title       string  `json:"title"`
		Version     string  `json:"version"` // "" is "development"
	}

	// License is the program's license.
	License struct {
		Identifier string `json:"identifier"`
		Name       string `json:"name"`
	}

	// Server is a base URL of the API.
	Server struct {
		Description string `json:"description"`
		URL         string `json:"url"`
	}

	// Tag is a group of operations.
	Tag struct {
		Description string `json:"description"`
		Name        string `json:"name"`
	}

	// Operation describes one route.
	Operation struct {
		Description string                `json:"description,omitempty"`
		ID          string                `json:"operationId"`
		Parameters  []*Parameter          `json:"parameters,omitempty"`
		Body        *RequestBody          `json:"requestBody,omitempty"`
		Responses   map[string]*Response  `json:"responses"`
		Security    []map[string][]string `json:"security,omitzero"` // an empty list needs no token
		Summary     string                `json:"summary"`
		Tags        []string              `json:"tags"`
	}

	// Parameter describes a path, query or header parameter.
	Parameter struct {
		Description string  `json:"description,omitempty"`
		Explode     *bool   `json:"explode,omitempty"`
		In          string  `json:"in"`
		Name        string  `json:"name"`
		Required    bool    `json:"required,omitempty"`
		Schema      *Schema `json:"schema"`
	}

	// RequestBody describes an operation's request body.
	RequestBody struct {
		Content  Content `json:"content"`
		Required bool    `json:"required,omitempty"`
	}

	// Response describes one response of an operation.
	Response struct {
		Content     Content            `json:"content,omitempty"`
		Description string             `json:"description"`
		Headers     map[string]*Header `json:"headers,omitempty"`
	}

	// Content maps content types to their schemas.
	Content map[string]MediaType

	// MediaType describes a body of one content type.
	MediaType struct {
		Schema *Schema `json:"schema"`
	}

	// Header describes a response header.
	Header struct {
		Description string  `json:"description"`
		Schema      *Schema `json:"schema"`
	}
)

// tokenScheme is the name of the security scheme.
const tokenScheme = "token"

// describe builds the OpenAPI document of an API.
func describe(o *Options, routes []Route) (*Document, []byte) {
	info := o.Info
	info.Version = cmp.Or(info.Version, "development")
	info.License = License{Name: "Apache-2.0", Identifier: "Apache-2.0"}
	d := &Document{
		OpenAPI: "3.1.0", Info: info, Tags: o.Tags, Paths: map[string]map[string]*Operation{},
		Servers: []Server{{URL: "/", Description: "The server that this description comes from."}},
		Components: Components{Schemas: o.Schemas.named, SecuritySchemes: map[string]SecurityScheme{tokenScheme: {
			Type: "http", Scheme: "bearer",
			Description: "A token made by `gq token create` or POST /v1/tokens. A server without tokens asks nobody for one.",
		}}},
		Security: []map[string][]string{{tokenScheme: {}}, {}},
	}
	for i := range routes {
		r := &routes[i]
		if r.ID == "" {
			continue
		}
		at := o.Base + r.Path
		if d.Paths[at] == nil {
			d.Paths[at] = map[string]*Operation{}
		}
		d.Paths[at][strings.ToLower(r.Method)] = r.operation(o)
	}
	var b bytes.Buffer
	if err := wire.EncodeJSONIndented(&b, d); err != nil {
		panic("httpx: describe the API: " + err.Error()) // a bug that any test finds
	}
	return d, b.Bytes()
}

func (r *Route) operation(o *Options) *Operation {
	op := &Operation{
		ID: r.ID, Tags: []string{r.Tag}, Summary: r.Summary, Description: r.Description, Responses: map[string]*Response{},
	}
	if r.Open {
		op.Security = []map[string][]string{}
	}
	for _, p := range r.parameters {
		op.Parameters = append(op.Parameters, p.describe(o.Schemas))
	}
	if r.body != nil {
		body := r.Body
		if body == nil {
			body = o.Schemas.Of(r.body)
		}
		op.Body = &RequestBody{Required: !r.Optional, Content: JSON(body)}
	}
	r.describeRefusals(o, op)
	if r.Responses == nil {
		r.describeSuccesses(o.Schemas, op)
	}
	maps.Copy(op.Responses, r.Responses)
	return op
}

func (r *Route) describeSuccesses(s *Schemas, op *Operation) {
	status := cmp.Or(r.Status, http.StatusOK)
	add := func(status int, text string) {
		success := &Response{Description: text}
		if r.answer != nil && status != http.StatusNoContent {
			success.Content = JSON(s.Of(r.answer))
			maps.Copy(success.Content, r.Forms)
		}
		for name, doc := range r.Headers {
			success.Headers = map[string]*Header{name: {Description: doc, Schema: &Schema{Type: "string"}}}
		}
		op.Responses[strconv.Itoa(status)] = success
	}
	add(status, http.StatusText(status))
	for also, text := range r.Also {
		add(also, text)
	}
}

// AnyRefusals returns the error responses of an operation that lists none.
func AnyRefusals() map[string]string {
	return map[string]string{
		"400":     "The request is wrong in itself; faults names every field.",
		"401":     "A valid token is required.",
		"403":     "The token does not allow this.",
		"default": "What else went wrong: RFC 9457 with a stable code.",
	}
}

func (r *Route) describeRefusals(o *Options, op *Operation) {
	all := r.Refusals
	if all == nil {
		all = AnyRefusals()
	}
	sample := o.Encode(&wire.Problem{}, "")
	schema := o.Schemas.Of(reflect.TypeOf(sample.Body))
	if _, is := sample.Body.(*wire.Problem); is {
		code := o.Schemas.Named(schema).Properties["code"]
		code.Description = "Stable, for programs. There may be more in later versions; so far: " + strings.Join(wire.Codes(), ", ") + "."
	}
	content := Content{sample.ContentType: {schema}}
	for status, text := range all {
		op.Responses[status] = &Response{Description: text, Content: content}
	}
}

func (p *parameter) describe(s *Schemas) *Parameter {
	out := &Parameter{Name: p.name, In: p.in, Description: p.field.Tag.Get("doc"), Required: p.in == "path" || p.field.Tag.Get("required") == "true"}
	out.Schema = s.ofField(&p.field, "")
	out.Schema.Description, out.Schema.Nullable = "", false
	if p.list && !p.explode {
		out.Explode = new(bool)
	}
	return out
}

// JSON returns the content of a JSON body.
func JSON(s *Schema) Content { return Content{"application/json": {s}} }

// Lines describes newline-delimited JSON, which OpenAPI 3.1 cannot express: generated
// clients get plain text, and people read the schema of one line.
func Lines(description string, line *Schema) *Schema {
	return &Schema{Type: "string", Description: description, ContentMediaType: "application/json", ContentSchema: line}
}
