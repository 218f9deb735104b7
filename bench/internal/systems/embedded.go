package systems

import "context"

// embedded is a system that runs inside its driver: a library, or plain system calls.
type embedded struct {
	name, title string
	w           *Workshop
}

func (s *embedded) Name() string  { return s.name }
func (s *embedded) Title() string { return s.title }

func (s *embedded) Prepare(_ context.Context, w *Workshop) error {
	s.w = w
	return nil
}

func (s *embedded) Start(ctx context.Context, dir string) (*Instance, error) {
	d, err := s.w.drive(ctx, s.name, dir)
	if err != nil {
		return nil, err
	}
	return &Instance{driver: d, dir: dir, Version: d.version}, nil
}
