package files

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"

	ckpt "github.com/ckptsidecar/ckptsidecar"
)

// ahead asks the system about the files of the previous tree while git lists the root.
// Each of them waits for the disk or takes a processor, and together they take most of
// the time of a scan.
type ahead struct {
	root  string
	place map[string]int // the index of a path in found
	found []looked
	work  sync.WaitGroup
}

// looked is what Lstat returns for a path.
type looked struct {
	info fs.FileInfo
	err  error
}

const (
	// aheadEach is how many paths a worker takes at a time.
	aheadEach = 32
	// aheadWorkers is the least number of workers: if nothing is in the caches, they wait
	// for the disk.
	aheadWorkers = 4
)

// lookAhead begins to look at entries and their folders. The entries must be sorted by
// path.
func lookAhead(root string, entries []ckpt.TreeEntry) *ahead {
	a := &ahead{root: root, place: make(map[string]int, len(entries)+len(entries)/4)}
	paths := make([]string, 0, len(entries)+len(entries)/4)
	add := func(path string) {
		a.place[path] = len(paths)
		paths = append(paths, path)
	}
	for i := range entries {
		for folder := parent(entries[i].Path); folder != ""; folder = parent(folder) {
			if _, known := a.place[folder]; known {
				break
			}
			add(folder)
		}
		add(entries[i].Path)
	}
	a.found = make([]looked, len(paths))
	var next atomic.Int64
	for range min(max(runtime.GOMAXPROCS(0), aheadWorkers), 1+len(paths)/aheadEach) {
		a.work.Go(func() {
			for {
				from := int(next.Add(aheadEach)) - aheadEach
				if from >= len(paths) {
					return
				}
				for i := from; i < min(from+aheadEach, len(paths)); i++ {
					a.found[i].info, a.found[i].err = a.ask(paths[i])
				}
			}
		})
	}
	return a
}

func (a *ahead) ask(path string) (fs.FileInfo, error) {
	return os.Lstat(filepath.Join(a.root, filepath.FromSlash(path)))
}

// wait returns when all paths have been looked at.
func (a *ahead) wait() { a.work.Wait() }

// lstat returns what is known about a path. If the path was not looked at, lstat does so
// now.
func (a *ahead) lstat(path string) (fs.FileInfo, error) {
	if at, known := a.place[path]; known {
		return a.found[at].info, a.found[at].err
	}
	return a.ask(path)
}
