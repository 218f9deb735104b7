package copy

import (
	"encoding/json"
	"fmt"

	"github.com/ckptsidecar/ckptsidecar/internal/db/blob"
	"github.com/ckptsidecar/ckptsidecar/internal/delta"
)

// renumber makes the numbers of rows anew, from 1, so that an export does not tell how much else the database has.
type renumber struct {
	numbers [numberings]map[int64]int64
	last    map[*table]int64 // of tables whose rows have numbers that nothing names
	now     int64            // the act that is copied
	first   map[int64]int64  // by the numbers of places, the first act that names one
}

// number is the number that an old one gets.
func (x *renumber) number(no numbering, old int64) int64 {
	if x.numbers[no] == nil {
		x.numbers[no] = map[int64]int64{}
	}
	given, met := x.numbers[no][old]
	if !met && no != actNo {
		given = int64(len(x.numbers[no])) + 1
		x.numbers[no][old] = given
		if no == placeNo {
			if x.first == nil {
				x.first = map[int64]int64{}
			}
			x.first[given] = x.now
		}
	}
	return given
}

// numberActs numbers the acts that the copy has, which are in order.
func (x *renumber) numberActs(rows []int64) {
	x.numbers[actNo] = make(map[int64]int64, len(rows))
	for i, n := range rows {
		x.numbers[actNo][n] = int64(i) + 1
	}
}

// anew replaces the numbers in a row.
func (x *renumber) anew(t *table, values []any) (err error) {
	if t == acts {
		x.now = x.number(actNo, t.whole(values, "n"))
	}
	for i := range t.columns {
		if values[i], err = x.value(t, &t.columns[i], values, values[i]); err != nil {
			return fmt.Errorf("%s: its %s %w", t.name, t.columns[i].name, err)
		}
	}
	return nil
}

func (x *renumber) value(t *table, c *column, row []any, v any) (any, error) {
	old, _ := v.(int64)
	text, _ := v.(string)
	switch c.no {
	case kept:
		if b, is := v.([]byte); is && b == nil { // the driver would write NULL
			return []byte{}, nil
		}
		return v, nil
	case leftOut:
		return nil, nil
	case made:
		switch {
		case t == places:
			return x.first[row[0].(int64)], nil
		case c.kind == blobs:
			return []byte{}, nil
		}
		return int64(0), nil
	case rowNo:
		if x.last == nil {
			x.last = map[*table]int64{}
		}
		x.last[t]++
		return x.last[t], nil
	case slotNo:
		return x.number(runNo, old>>32)<<32 | old&(1<<32-1), nil
	}
	switch {
	case v == nil:
		return nil, nil
	case c.no == segmentList:
		return x.pieces(text, segmentNo)
	case c.no == contentList:
		return x.pieces(text, contentNo)
	case c.no == removedActs:
		return x.removed(text)
	}
	if given := x.number(c.no, old); given != nobody {
		return given, nil
	}
	return nil, nil
}

// pieces replaces the numbers in a list of pieces. delta.New, the row itself, stays.
func (x *renumber) pieces(text string, no numbering) (any, error) {
	list, err := blob.ReadPieces(text)
	for i := range list {
		if list[i].Segment != delta.New {
			list[i].Segment = x.number(no, list[i].Segment)
		}
	}
	return blob.WritePieces(list), err
}

// removed replaces the numbers of acts in the column more of an act.
func (x *renumber) removed(text string) (any, error) {
	var more struct {
		Labels  string   `json:"labels,omitempty"`
		Parent  string   `json:"parent,omitempty"`
		Pinned  bool     `json:"pinned,omitempty"`
		Removed [][2]any `json:"removed,omitempty"`
		Suspect bool     `json:"suspect,omitempty"`
	}
	if err := json.Unmarshal([]byte(text), &more); err != nil {
		return nil, err
	}
	for i := range more.Removed {
		old, _ := more.Removed[i][0].(float64)
		more.Removed[i][0] = x.number(actNo, int64(old))
	}
	b, err := json.Marshal(&more)
	return string(b), err
}
