package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

// viewHelp says what --view does.
const viewHelp = `With --view jobs have the states and names of one document, and no others: semantics
(Ready, InFlight, Succeeded, Failed) or jobmodel.`

// viewColumns are the members that a table of jobs and one of events have in each view.
var viewColumns = map[string][2]string{
	"semantics": {"id state queue retries MaxRetries lease_version LeaseExpiresAt retry_at", "time state trigger lease_version LeaseExpiresAt retry_at reason"},
	"jobmodel":  {"id state type priority attempt created_at updated_at", "updated_at state attempt failure"},
}

// viewFlag is --view.
type viewFlag struct{ name string }

func (f *viewFlag) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.name, "view", "", "in the states and names of a document: "+strings.Join(view.Names(), " or "))
}

// chosen returns the view, nil for none.
func (f *viewFlag) chosen() (*view.View, error) {
	v, err := view.Named(f.name)
	if err != nil {
		return nil, cli.Invalid("view", fmt.Sprintf("%.64q is not one of %v", f.name, view.Names()))
	}
	return v, nil
}

// viewStates returns the states of a view that a user names, in whatever case.
func viewStates(v *view.View, names []string) ([]string, error) {
	states := slices.Clone(names)
	for i, name := range names {
		at := slices.IndexFunc(v.States, func(s string) bool { return strings.EqualFold(s, name) })
		if at < 0 {
			return nil, cli.Invalid("state", fmt.Sprintf("%.64q is not one of %v", name, v.States))
		}
		states[i] = v.States[at]
	}
	return states, nil
}

// lister lists jobs.
type lister func(ctx context.Context, q gq.Query) (gq.Page, error)

// List calls f.
func (f lister) List(ctx context.Context, q gq.Query) (gq.Page, error) { return f(ctx, q) }

// members returns what is encoded of an object, in its order.
func members(object any) (all [][2]string) {
	var encoded bytes.Buffer
	_ = wire.EncodeJSON(&encoded, object) // a view can be encoded, and a buffer takes everything
	d := json.NewDecoder(&encoded)
	_, _ = d.Token() // {
	for d.More() {
		name, _ := d.Token()
		var value json.RawMessage
		_ = d.Decode(&value)
		shown := string(value)
		var content string
		if json.Unmarshal(value, &content) == nil {
			shown = content
		}
		all = append(all, [2]string{fmt.Sprint(name), oneLine(shown, 200)})
	}
	return all
}

// viewTable prints some members of objects.
func (s screen) viewTable(columns string, objects []any) {
	rows := make([][]cell, len(objects))
	for i, object := range objects {
		rows[i] = viewCells(columns, object)
	}
	s.table(strings.Fields(columns), rows) // as the document spells them
}

func viewCells(columns string, object any) (cells []cell) {
	all := members(object)
	for column := range strings.FieldsSeq(columns) {
		value := ""
		if at := slices.IndexFunc(all, func(m [2]string) bool { return m[0] == column }); at >= 0 {
			value = all[at][1]
		}
		cells = append(cells, text(value))
	}
	return cells
}

// viewPage prints a page of jobs.
func (s screen) viewPage(v *view.View, page gq.Page) {
	objects := make([]any, len(page.Jobs))
	for i := range page.Jobs {
		objects[i] = v.Job(&page.Jobs[i])
	}
	s.viewTable(viewColumns[v.Name][0], objects)
}

// printHistory prints the events of a job, in a view unless that is nil.
func (r *remote) printHistory(v *view.View, events []gq.Event) error {
	if v == nil {
		if r.json {
			return r.printEvents(&eventFilter{}, events)
		}
		r.screen().timeline(events)
		return nil
	}
	var objects []any
	for _, e := range v.History(events) {
		objects = append(objects, e.Shown)
	}
	if !r.json {
		r.screen().viewTable(viewColumns[v.Name][1], objects)
		return nil
	}
	for _, object := range objects {
		if err := wire.EncodeJSON(r.stdout, object); err != nil {
			return err
		}
	}
	return nil
}

// printViewed prints events of any job in a view.
func (r *remote) printViewed(v *view.View, states []string, events []gq.Event) error {
	for _, e := range v.History(events) {
		if len(states) > 0 && !slices.Contains(states, e.State) {
			continue
		}
		if r.json {
			if err := wire.EncodeJSON(r.stdout, e.Shown); err != nil {
				return err
			}
			continue
		}
		var line []string
		for _, c := range viewCells("id "+viewColumns[v.Name][1], e.Shown) {
			line = append(line, c.text)
		}
		if _, err := fmt.Fprintln(r.stdout, strings.TrimRight(strings.Join(line, "  "), " ")); err != nil {
			return err
		}
	}
	return nil
}
