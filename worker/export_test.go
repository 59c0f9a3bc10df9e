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

// EnterGone lets groups whose jobs have left take a slot, one after another, and returns how many
// slots are in use in the end.
func EnterGone(groups int) (used int) {
	s := newSlots(Config{Slots: 1, QueueSets: []QueueSet{{Queues: []string{"q"}, Slots: 1}}}, nil, []string{"t"}, 1)
	set := s.fetchers[0].set
	gone := make(chan struct{})
	close(gone)
	for range groups {
		if s.enter(set, gone) {
			s.exit(set)
		}
	}
	_, used, _ = s.counts()
	return used
}
