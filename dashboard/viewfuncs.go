package dashboard

import (
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// The methods of view are what templates call.

// Time writes how far a time is from now, with the exact one as a title.
func (w view) Time(t time.Time) template.HTML { return timeElement(t, ago(t, w.Now), "") }

// Age is Time without "ago".
func (w view) Age(t time.Time) template.HTML {
	return timeElement(t, duration(max(0, w.Now.Sub(t))), "age")
}

// Stamp writes the exact time.
func (w view) Stamp(t time.Time) template.HTML {
	return timeElement(t, t.UTC().Format("2006-01-02 15:04:05"), "exact")
}

func timeElement(t time.Time, text, form string) template.HTML {
	if t.IsZero() {
		return `<span class="dim">–</span>`
	}
	if form != "" {
		form = fmt.Sprintf(` data-form="%s"`, form)
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s"%s>%s</time>`, machineTime(t), instant(t), form, template.HTMLEscapeString(text))) //nolint:gosec // escaped
}

// remedy writes what to do about something, with the command in it as such.
func remedy(text string) template.HTML {
	text = oneLine(text)
	advice, command, ok := strings.Cut(text, ": gq ")
	if !ok {
		return template.HTML(template.HTMLEscapeString(text)) //nolint:gosec // escaped
	}
	return template.HTML(template.HTMLEscapeString(advice) + ": <code>gq " + template.HTMLEscapeString(command) + "</code>") //nolint:gosec // escaped
}

// On reports whether this is one of the named pages.
func (w view) On(names string) bool { return slices.Contains(strings.Fields(names), w.Page) }

// Lower is the value of a status in a filter.
func (w view) Lower(s gq.Status) string { return strings.ToLower(s.String()) }

// Words is a name in capitals for people.
func (w view) Words(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", " ")) }

// Short is the end of a workflow's id; the beginning is a time.
func (w view) Short(id gq.WorkflowID) string {
	text := id.String()
	return text[len(text)-8:]
}

// Claimed is the page of what a worker claims: a queue, or the queues of a pattern.
func (w view) Claimed(queue string) template.URL {
	path := "queue?" + url.Values{"name": {queue}}.Encode()
	if prefix, ok := strings.CutSuffix(queue, "*"); ok {
		path = "queues?" + url.Values{"find": {prefix}}.Encode()
	}
	return template.URL(path) //nolint:gosec // encoded
}

// Ref is the name of a job in its workflow.
func (w view) Ref(j jobView) string { return oneLine(j.Spec.Ref) }

// Query encodes the parameters of a link, with further ones.
func (w view) Query(q url.Values, more ...string) template.URL {
	for i := 0; i+1 < len(more); i += 2 {
		q.Set(more[i], more[i+1])
	}
	return template.URL(q.Encode()) //nolint:gosec // encoded
}

// MayAll reports whether the visitor has a permission on all of the queues.
func (w view) MayAll(permission string, queues []string) bool {
	return !slices.ContainsFunc(queues, func(q string) bool { return !w.May(permission, q) })
}

// Source reports whether the server has a source that the visitor may see.
func (w view) Source(name string) bool {
	s := &w.v.d.options.Sources
	switch name {
	case "webhooks":
		return s.Deliveries != nil
	case "providers":
		return s.Providers != nil && (s.Matching == "" || w.May("read", s.Matching))
	case "rounds":
		return s.Rounds != nil && (s.Matching == "" || w.May("read", s.Matching))
	case "tokens":
		return s.Tokens != nil
	case "trail":
		return s.Trail != nil
	case "settings":
		return s.Settings != nil
	}
	return false
}
