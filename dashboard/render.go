package dashboard

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
)

//go:embed templates/*.html
var templates embed.FS

//go:embed assets
var files embed.FS

// asset is a file with a name that changes with its content, so browsers can keep it for ever.
type asset struct {
	name, contentType string
	data, packed      []byte // as it is, and with gzip
}

var contentTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func loadAssets() (map[string]asset, error) {
	all := make(map[string]asset)
	names, err := fs.Glob(files, "assets/*")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		data, err := files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		base, extension := path.Base(file), path.Ext(file)
		name := strings.TrimSuffix(base, extension) + "." + hex.EncodeToString(sum[:6]) + extension
		all[name] = asset{base, contentTypes[extension], data, pack(data)}
	}
	return all, nil
}

func (d *Dashboard) asset(v *visit) error {
	found, ok := d.assets[v.r.PathValue("name")]
	if !ok {
		return v.notHere()
	}
	h := v.w.Header()
	h.Set("Content-Type", found.contentType)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	data := v.encode(found.data, found.packed)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	if v.r.Method != http.MethodHead {
		_, _ = v.w.Write(data) // an error means that the browser has gone
	}
	return nil
}

// pages are the templates, each with the layout, by name.
type pages map[string]*template.Template

func loadPages(assets map[string]asset) (pages, error) {
	hashed := make(map[string]string)
	for name, a := range assets {
		hashed[a.name] = name
	}
	functions := template.FuncMap{
		"asset": func(name string) (string, error) {
			if hashed[name] == "" {
				return "", fmt.Errorf("no asset %s", name)
			}
			return "assets/" + hashed[name], nil
		},
		"statuses": func() (all []gq.Status) {
			for s := gq.StatusPending; s.Valid(); s++ {
				all = append(all, s)
			}
			return all
		},
		"priorities": func() (all []gq.Priority) {
			for p := gq.PriorityCritical; p.Valid(); p++ {
				all = append(all, p)
			}
			return all
		},
		"dict": dict, "query": query, "add": func(a, b int) int { return a + b },
		"number": number, "bytes": byteSize, "duration": duration, "instant": instant, "machine": machineTime, "ago": ago,
		"icon": icon, "tone": tone, "word": word, "short": short, "printable": printable, "oneline": oneLine, "long": long, "remedy": remedy, "minute": minute, "minutely": perMinute, "percent": percent, "plural": plural,
	}
	layout, err := template.New("layout").Funcs(functions).ParseFS(templates, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(templates, "templates/*.html")
	if err != nil {
		return nil, err
	}
	all := make(pages)
	for _, file := range names {
		name := strings.TrimSuffix(path.Base(file), ".html")
		if name == "layout" || name == "parts" {
			continue
		}
		page, err := layout.Clone()
		if err == nil {
			page, err = page.ParseFS(templates, file)
		}
		if err != nil {
			return nil, err
		}
		all[name] = page
	}
	return all, nil
}

// dict makes the argument of a part from names and values.
func dict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict has an odd number of arguments")
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is not a name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}

// query encodes the parameters of a link, without empty ones.
func query(pairs ...any) (template.URL, error) {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			q.Set(fmt.Sprint(pairs[i]), text)
		}
	}
	return template.URL(q.Encode()), nil //nolint:gosec // encoded
}

// doneTexts say what an action did. %s is the parameter n, a number.
var doneTexts = map[string]string{
	"cancelled":       "The job was cancelled.",
	"requested":       "The worker of this job was asked to stop it.",
	"replayed":        "This is the new job.",
	"replayed-before": "The job was already replayed. This is its replay.",
	"run":             "The job can run now.",
	"rescheduled":     "The job was rescheduled.",
	"put-off":         "The job was put off: this copy took its place.",
	"priority":        "The priority was changed.",
	"purged":          "The job was removed.",
	"paused":          "The queue is paused. Running jobs continue.",
	"resumed":         "The queue is no longer paused.",
	"limits":          "The limits were changed.",
	"bulk-cancel":     "%s jobs were cancelled or asked to stop.",
	"bulk-replay":     "%s jobs were submitted again.",
	"bulk-more":       "%s jobs were submitted again. There are more: repeat the action.",
	"bulk-purge":      "%s jobs were removed.",
	"dead-replay":     "%s jobs were submitted again.",
	"triggered":       "A job was submitted.",
	"schedule":        "The schedule was changed.",
	"deleted":         "The schedule was deleted. Its jobs stay.",
	"flow-cancel":     "The workflow was cancelled.",
	"flow-retry":      "What did not complete was submitted again.",
	"signalled":       "The signal was sent.",
	"redelivered":     "The delivery is tried again.",
}

func doneText(q url.Values) string {
	text := doneTexts[q.Get("done")]
	if strings.Contains(text, "%s") {
		n, err := strconv.ParseInt(q.Get("n"), 10, 64)
		if err != nil || n < 0 {
			return ""
		}
		text = fmt.Sprintf(text, number(n))
		if n == 1 {
			text = strings.Replace(text, "1 jobs were", "1 job was", 1)
		}
	}
	return text
}
