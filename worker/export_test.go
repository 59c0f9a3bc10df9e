package worker

// Mux lets tests register handlers before the worker is configured.
type Mux = mux

// NewMux returns a mux without handlers.
func NewMux() *Mux { return new(mux) }

// NewWith creates a worker with the handlers of a mux, and reports what Run would reject.
func NewWith(q Queue, m *Mux, c Config) (*Worker, error) {
	w := New(q, c)
	w.mux = *m
	if err := w.begin(); err != nil {
		return nil, err
	}
	return w, nil
}
