package democmd

import "testing"

func TestTheDemosWorkNoticesWhatIsLeftOut(t *testing.T) {
	whole, short := work{}, work{}
	for n := range 10 {
		whole = whole.next()
		if n != 5 {
			short = short.next()
		}
	}
	if whole == short || whole.Step != 10 {
		t.Errorf("%+v, %+v", whole, short)
	}
}
