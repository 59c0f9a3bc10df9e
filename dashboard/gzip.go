package dashboard

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// compressed is the size from which a response is compressed.
const compressed = 1 << 10

// gzips keeps compressors, which are large.
var gzips = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // the level exists
	return w
}}

// pack returns the data compressed with gzip.
func pack(data []byte) []byte {
	var out bytes.Buffer
	w := gzips.Get().(*gzip.Writer)
	defer gzips.Put(w)
	w.Reset(&out)
	_, _ = w.Write(data) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

// acceptsGzip reports whether the browser can unpack gzip.
func acceptsGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			q, ok := strings.CutPrefix(strings.TrimSpace(weight), "q=")
			value, err := strconv.ParseFloat(q, 64)
			return !ok || err == nil && value > 0
		}
	}
	return false
}

// encode prepares the headers of a response and returns what to send: packed, or data if that is shorter or the browser
// cannot unpack it. packed nil compresses data here.
func (v *visit) encode(data, packed []byte) []byte {
	h := v.w.Header()
	h.Add("Vary", "Accept-Encoding")
	if len(data) < compressed || !acceptsGzip(v.r) {
		return data
	}
	if packed == nil {
		packed = pack(data)
	}
	h.Set("Content-Encoding", "gzip")
	return packed
}
