package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/spelling"
)

// Sources are the sources of a configuration.
type Sources struct {
	File  string                   // name of the file, for messages
	Text  []byte                   // contents of the file; nil without a file
	Env   func(name string) string // nil for none
	Flags map[string]string        // by key; only the given ones

	// Check reports faults in values that other packages parse, by key; nil skips it.
	Check func(c *Config, fault func(key, format string, args ...any))
}

// Loaded is a configuration together with the origin of each value.
type Loaded struct {
	Config
	origins map[string]string // by key; absent means the default
}

// given is one value from one source.
type given struct {
	key, text string
	from      string // for messages: "gq.yaml:3", "--http", "GQ_HTTP"
	rank      int    // precedence of the source
}

// Load reads all sources. The error is [gq.ErrInvalid] with every fault of all sources.
func Load(s Sources) (Loaded, error) {
	out := Loaded{Config: Default(), origins: map[string]string{}}
	settings := out.Config.Settings()
	l := loader{settings: settings}
	l.file(s)
	for _, setting := range settings {
		if s.Env != nil {
			if text := s.Env(setting.Variable()); text != "" {
				l.given = append(l.given, given{setting.Key, text, setting.Variable(), 1})
			}
		}
		if text, ok := s.Flags[setting.Key]; ok {
			l.given = append(l.given, given{setting.Key, text, "--" + setting.Flag(), 2})
		}
	}
	slices.SortStableFunc(l.given, func(a, b given) int { return cmp.Compare(a.rank, b.rank) })
	ranks := map[string]given{} // by the key that the name refers to
	for _, g := range l.given {
		setting, _ := Lookup(settings, g.key)
		if err := setting.kind.set(g.text); err != nil {
			l.fault(g.from, g.key, "%v", err)
			continue
		}
		meant := meant(g.key)
		if other, taken := ranks[meant]; taken && other.rank == g.rank && other.key != g.key {
			l.fault(g.from, g.key, "contradicts %s (%s): they are the same setting", other.key, other.from)
		}
		ranks[meant] = g
		out.origins[meant] = g.from
	}
	// A value that could not be parsed keeps its default, which contradicts nothing.
	fault := func(key, format string, args ...any) { l.fault(out.origin(key), key, format, args...) }
	out.Config.check(fault)
	if s.Check != nil {
		s.Check(&out.Config, fault)
	}
	if len(l.faults) > 0 {
		slices.SortStableFunc(l.faults, func(a, b gq.Fault) int { return cmp.Compare(line(s.File, a.Field), line(s.File, b.Field)) })
		return out, &gq.InvalidError{Faults: l.faults}
	}
	return out, nil
}

// line returns the line of the file that a fault refers to; faults without a line sort
// last.
func line(file, field string) int {
	rest, ok := strings.CutPrefix(field, file+":")
	digits, _, _ := strings.Cut(rest, ":")
	if n, err := strconv.Atoi(digits); ok && err == nil {
		return n
	}
	return math.MaxInt
}

// origin returns where a key got its value; for a section, the origin of its first key
// that was set.
func (l *Loaded) origin(key string) string {
	if from := l.origins[key]; from != "" {
		return from
	}
	for _, s := range l.Config.Settings() {
		if from := l.origins[s.Key]; from != "" && (strings.HasPrefix(s.Key, key+".") || strings.HasPrefix(key, s.Key+".")) {
			return from
		}
	}
	return ""
}

// meant resolves an alias to its key.
func meant(key string) string {
	switch key {
	case "data":
		return "store"
	case "capacity":
		return "scheduler.capacity"
	default:
		return key
	}
}

type loader struct {
	settings []Setting
	given    []given
	faults   []gq.Fault
}

// fault names the key and, if different, where it was set.
func (l *loader) fault(from, key, format string, args ...any) {
	field := key
	switch {
	case from != "" && key != "":
		field = from + ": " + key
	case key == "":
		field = from
	}
	l.faults = append(l.faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (l *loader) file(s Sources) {
	if len(s.Text) == 0 {
		return
	}
	file, err := parser.ParseBytes(s.Text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		from, text := s.File, err.Error()
		if e, ok := errors.AsType[*yaml.SyntaxError](err); ok {
			text = e.GetMessage()
			if t := e.GetToken(); t != nil && t.Position != nil {
				from += ":" + strconv.Itoa(t.Position.Line)
			}
		}
		if strings.Contains(text, "mapping value") {
			text += "; a value with a colon at its end or before a space needs quotes, such as store: \"memory:\""
		}
		l.fault(from, "", "%s", text)
		return
	}
	seen := map[string]int{}
	for i, document := range file.Docs {
		if i > 0 && document.Body != nil {
			l.fault(l.place(s.File, document.Body), "", "a second document; a configuration is one")
			continue
		}
		if document.Body != nil {
			l.mapping(s.File, "", document.Body, seen)
		}
	}
}

func (l *loader) place(file string, n ast.Node) string {
	if t := n.GetToken(); t != nil && t.Position != nil {
		return file + ":" + strconv.Itoa(t.Position.Line)
	}
	return file
}

// mapping reads the keys below a prefix.
func (l *loader) mapping(file, prefix string, n ast.Node, seen map[string]int) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	case *ast.NullNode, *ast.CommentGroupNode:
		return
	default:
		l.fault(l.place(file, n), prefix, "is not a list of keys with values")
		return
	}
	for _, v := range values {
		name := v.Key.GetToken().Value
		key := name
		if prefix != "" {
			key = prefix + "." + name
		}
		from := l.place(file, v.Key)
		if line, twice := seen[key]; twice {
			l.fault(from, key, "is given in line %d already", line)
			continue
		}
		seen[key] = v.Key.GetToken().Position.Line
		switch {
		case l.isKey(key):
			l.value(from, key, v.Value)
		case l.isPrefix(key):
			l.mapping(file, key, v.Value, seen)
		default:
			l.unknown(from, key)
		}
	}
}

func (l *loader) isKey(key string) bool { _, ok := Lookup(l.settings, key); return ok }

func (l *loader) isPrefix(key string) bool {
	return slices.ContainsFunc(l.settings, func(s Setting) bool { return strings.HasPrefix(s.Key, key+".") })
}

func (l *loader) unknown(from, key string) {
	keys := make([]string, len(l.settings))
	for i, s := range l.settings {
		keys[i] = s.Key
	}
	if best := spelling.Nearest(key, keys); best != "" {
		l.fault(from, key, "is not a known key; did you mean %s?", best)
		return
	}
	l.fault(from, key, "is not a known key")
}

// value reads a scalar, or a list of scalars if the key takes one.
func (l *loader) value(from, key string, n ast.Node) {
	switch n := n.(type) {
	case *ast.NullNode:
		l.fault(from, key, "has no value")
	case *ast.SequenceNode:
		var all []string
		for _, entry := range n.Values {
			scalar, ok := entry.(ast.ScalarNode)
			if !ok {
				l.fault(from, key, "is not a list of texts")
				return
			}
			all = append(all, scalarText(scalar))
		}
		if s, _ := Lookup(l.settings, key); !isList(s) {
			l.fault(from, key, "is one value, not a list")
			return
		}
		l.given = append(l.given, given{key, strings.Join(all, ","), from, 0})
	case ast.ScalarNode:
		l.given = append(l.given, given{key, scalarText(n), from, 0})
	case *ast.MappingNode:
		l.amounts(from, key, n.Values)
	case *ast.MappingValueNode:
		l.amounts(from, key, []*ast.MappingValueNode{n})
	default:
		l.fault(from, key, "is one value, and keys stand below it")
	}
}

// amounts reads names with numbers if the key takes them.
func (l *loader) amounts(from, key string, values []*ast.MappingValueNode) {
	s, _ := Lookup(l.settings, key)
	if _, ok := s.kind.(*amountsKind); !ok {
		l.fault(from, key, "is one value, and keys stand below it")
		return
	}
	var all []string
	seen := map[string]bool{}
	for _, v := range values {
		name := v.Key.GetToken().Value
		scalar, ok := v.Value.(ast.ScalarNode)
		switch {
		case !ok:
			l.fault(from, key, "is not a list of names with numbers")
			return
		case seen[name]:
			l.fault(from, key, "has %q more than once", name)
			return
		}
		seen[name] = true
		all = append(all, name+"="+scalarText(scalar))
	}
	l.given = append(l.given, given{key, strings.Join(all, ","), from, 0})
}

func isList(s Setting) bool { _, ok := s.kind.(*listKind); return ok }

// scalarText returns a value as written, without quotes.
func scalarText(n ast.ScalarNode) string {
	if s, ok := n.GetValue().(string); ok {
		return s
	}
	return n.GetToken().Value
}

// Print writes the configuration as a file that would produce it, with the origin of each
// value and without secrets.
func (l *Loaded) Print(w io.Writer) error {
	var open []string // sections of the previous line
	for _, s := range l.Config.Settings() {
		if s.Short {
			continue
		}
		path := strings.Split(s.Key, ".")
		sections := path[:len(path)-1]
		same := 0
		for same < min(len(open), len(sections)) && open[same] == sections[same] {
			same++
		}
		for i, name := range sections[same:] {
			fmt.Fprintf(w, "%s%s:\n", strings.Repeat("  ", same+i), name)
		}
		open = sections
		indent, from := strings.Repeat("  ", len(sections)), cmp.Or(l.origins[s.Key], "default")
		if _, err := fmt.Fprintf(w, "%s%s: %s # %s\n", indent, path[len(path)-1], yamlText(s), from); err != nil {
			return err
		}
	}
	return nil
}

// yamlText formats a value for a YAML file.
func yamlText(s Setting) string {
	switch k := s.kind.(type) {
	case *listKind:
		parts := make([]string, len(*k.to))
		for i, p := range *k.to {
			parts[i] = strconv.Quote(p)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case *amountsKind:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(*k.to)) {
			parts = append(parts, strconv.Quote(name)+": "+strconv.FormatInt((*k.to)[name], 10))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	text := s.Text()
	if text == "" || strings.ContainsAny(text, ":#{}[],&*!|>'\"%@` ") {
		return strconv.Quote(text)
	}
	return text
}

// Values returns all settings by key, for JSON output.
func (l *Loaded) Values() map[string]Value {
	out := map[string]Value{}
	for _, s := range l.Config.Settings() {
		if !s.Short {
			out[s.Key] = Value{s.Text(), cmp.Or(l.origins[s.Key], "default")}
		}
	}
	return out
}

// Value is the value of a key and its origin.
type Value struct {
	Value string `json:"value"`
	From  string `json:"from"`
}
