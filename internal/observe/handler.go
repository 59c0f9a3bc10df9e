package observe

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
)

// Page serves the metrics of a registry, in the text format of Prometheus.
func Page(g prometheus.Gatherer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD", http.StatusMethodNotAllowed)
			return
		}
		families, err := g.Gather()
		if err != nil {
			http.Error(w, "cannot gather the metrics", http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		_ = write(w, families) // an error means that the scraper has gone
	})
}
