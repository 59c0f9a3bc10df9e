package native

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/gopherqueue/gq/internal/httpx"
)

var errDraining = errors.New("the server is about to stop")

// docsPage is the API reference for people: one page without scripts or external
// resources.
type docsPage struct {
	html   []byte
	policy string
}

const docsStyle = `body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h1{margin-bottom:0}h2{margin-top:2.5rem;border-bottom:1px solid #d0d7de}
details{border:1px solid #d0d7de;border-radius:6px;margin:.5rem 0;padding:.4rem .8rem}
summary{cursor:pointer}code,pre{font:14px ui-monospace,monospace}
.verb{display:inline-block;min-width:4.5rem;font-weight:600}
table{border-collapse:collapse;margin:.5rem 0}td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}
.dim{color:#59636e}
@media (prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}h2,details{border-color:#30363d}.dim{color:#9198a1}a{color:#4493f8}}`

var docsTemplate = template.Must(template.New("docs").Parse(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{.Title}} HTTP API</title><style>` + docsStyle + `</style></head><body>
<h1>{{.Title}} HTTP API</h1>
<p>{{.About}} For programs: <a href="/openapi.json">openapi.json</a>.</p>
{{range .Groups}}<h2>{{.Name}}</h2><p class="dim">{{.About}}</p>
{{range .Operations}}<details id="{{.ID}}"><summary><span class="verb">{{.Method}}</span> <code>{{.Path}}</code> <span class="dim">{{.Summary}}</span></summary>
{{with .About}}<p>{{.}}</p>{{end}}
{{with .Parameters}}<table><tr><th>parameter</th><th>in</th><th></th></tr>{{range .}}<tr><td><code>{{.Name}}</code></td><td>{{.In}}</td><td>{{.About}}</td></tr>{{end}}</table>{{end}}
{{with .Body}}<p>Body: <a href="#schema-{{.}}"><code>{{.}}</code></a></p>{{end}}
{{range .Answers}}<p>{{.Status}} {{with .Schema}}<a href="#schema-{{.}}"><code>{{.}}</code></a>{{end}} <span class="dim">{{.About}}</span></p>{{end}}
</details>
{{end}}{{end}}
<h2>Objects</h2>
{{range .Schemas}}<details id="schema-{{.Name}}"><summary><code>{{.Name}}</code></summary>
<table>{{range .Fields}}<tr><td><code>{{.Name}}</code>{{if .Required}}*{{end}}</td><td class="dim">{{.Form}}</td><td>{{.About}}</td></tr>{{end}}</table></details>
{{end}}
<p class="dim">* always there, or required.</p>
</body></html>
`))

type (
	docsGroup struct {
		Name, About string
		Operations  []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, About string
		Parameters                       []docsParameter
		Body                             string
		Answers                          []docsAnswer
	}
	docsParameter struct{ Name, In, About string }
	docsAnswer    struct{ Status, Schema, About string }
	docsSchema    struct {
		Name   string
		Fields []docsField
	}
	docsField struct {
		Name, Form, About string
		Required          bool
	}
)

func newDocsPage(api *httpx.Document) docsPage {
	data := struct {
		Title, About string
		Groups       []docsGroup
		Schemas      []docsSchema
	}{Title: api.Info.Title, About: api.Info.Description}
	for _, tag := range api.Tags {
		data.Groups = append(data.Groups, docsGroup{tag.Name, tag.Description, docsOperations(api, tag.Name)})
	}
	schemas := api.Components.Schemas
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		data.Schemas = append(data.Schemas, docsSchema{name, docsFields(schemas[name])})
	}
	var b bytes.Buffer
	if err := docsTemplate.Execute(&b, data); err != nil {
		panic("native: write the docs page: " + err.Error()) // a bug that any test finds
	}
	sum := sha256.Sum256([]byte(docsStyle))
	return docsPage{
		html: b.Bytes(),
		policy: fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
			base64.StdEncoding.EncodeToString(sum[:])),
	}
}

func (h *HTTP) docs(c *httpx.Call) error {
	header := c.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", h.page.policy)
	header.Set("Referrer-Policy", "no-referrer")
	_, _ = c.Write(h.page.html) // an error means that the client has gone
	return nil
}

func docsOperations(api *httpx.Document, tag string) (all []docsOperation) {
	for _, path := range slices.Sorted(maps.Keys(api.Paths)) {
		item := api.Paths[path]
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			op := item[strings.ToLower(method)]
			if op == nil || !slices.Contains(op.Tags, tag) {
				continue
			}
			out := docsOperation{ID: op.ID, Method: method, Path: path, Summary: op.Summary, About: op.Description}
			for _, p := range op.Parameters {
				out.Parameters = append(out.Parameters, docsParameter{p.Name, p.In, p.Description})
			}
			if op.Body != nil {
				for _, content := range op.Body.Content {
					out.Body = docsRef(content.Schema)
				}
			}
			for _, status := range slices.Sorted(maps.Keys(op.Responses)) {
				answer := docsAnswer{Status: status, About: op.Responses[status].Description}
				for _, form := range slices.Backward(slices.Sorted(maps.Keys(op.Responses[status].Content))) {
					answer.Schema = docsRef(op.Responses[status].Content[form].Schema) // application/json is the first
				}
				out.Answers = append(out.Answers, answer)
			}
			all = append(all, out)
		}
	}
	return all
}

func docsRef(s *httpx.Schema) string {
	if s == nil {
		return ""
	}
	return s.Name()
}

func docsFields(s *httpx.Schema) (all []docsField) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		all = append(all, docsField{
			Name: name, Form: docsForm(p), About: p.Description, Required: slices.Contains(s.Required, name),
		})
	}
	return all
}

// docsForm describes the type of a value in words.
func docsForm(s *httpx.Schema) string {
	switch {
	case s == nil:
		return "any"
	case s.Ref != "":
		return docsRef(s)
	case len(s.Enum) > 0:
		return strings.Join(s.Enum, ", ")
	case len(s.OneOf) > 0:
		words := make([]string, len(s.OneOf))
		for i, o := range s.OneOf {
			words[i] = docsForm(o)
		}
		return strings.Join(words, " or ")
	case s.Type == "array":
		return "list of " + docsForm(s.Items)
	case s.Format != "":
		return s.Format
	}
	return cmp.Or(s.Type, "any")
}
