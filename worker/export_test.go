package worker

// Mux lets tests register handlers before they know how the worker is configured.
type Mux = mux

// NewMux is one without handlers.
func NewMux() *Mux { return new(mux) }

// NewWith makes a worker with the handlers of a mux, and reports what Run would refuse.
func NewWith(q Queue, m *Mux, c Config) (*Worker, error) {
	w := New(q, c)
	w.mux = *m
	if err := w.begin(); err != nil {
		return nil, err
	}
	return w, nil
}
