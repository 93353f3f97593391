package erase

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

func TestErasesDataDisksOnly(t *testing.T) {
	for _, method := range []string{protocol.EraseZero, protocol.EraseDiscard} {
		t.Run(method, func(t *testing.T) {
			l := newLab(t)
			data, parted, system := l.loop("data"), l.loop("parted", "--partscan"), l.loop("system")
			l.partition(parted)
			l.mounted(system)
			got := l.erase(l.eraser(), method)
			for name, want := range map[string]protocol.ErasureResult{
				data: protocol.Erased, parted: protocol.Erased, system: protocol.ErasureKept,
			} {
				if got[name].Result != want {
					t.Errorf("%s: %+v, want %s", name, got[name], want)
				}
				if l.isZero(name) != (want == protocol.Erased) {
					t.Errorf("%s is zero: %t", name, l.isZero(name))
				}
			}
			if l.partitioned(parted) {
				t.Error("the kernel still has the partition")
			}
			if d := got[data]; d.Serial != "data" || d.SizeBytes != diskBytes || d.Message == "" {
				t.Errorf("reports %+v", d)
			}
		})
	}
}

// TestMountedDiskIsRefusedByTheKernel is what holds should the survey ever be wrong.
func TestMountedDiskIsRefusedByTheKernel(t *testing.T) {
	l := newLab(t)
	system := l.loop("system")
	l.mounted(system)
	l.write("/proc/self/mountinfo", "")
	if !l.real {
		if _, err := openDevice(l.path(system)); err == nil {
			t.Error("opened a file that is no device")
		}
		return
	}
	got := l.erase(l.eraser(), protocol.EraseZero)[system]
	if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "busy") || l.isZero(system) {
		t.Errorf("got %+v", got)
	}
	// What holds a disk need not be a mount.
	held := l.loop("held")
	holder, err := openDevice(l.path(held))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close() }()
	if got := l.erase(l.eraser(), protocol.EraseZero)[held]; got.Result != protocol.ErasureFails || l.isZero(held) {
		t.Errorf("a disk that is held: %+v", got)
	}
}

func TestFailingDisksAreNamed(t *testing.T) {
	l := newLab(t)
	readOnly, short, gone, fine := l.readOnly("read-only"), l.loop("short"), l.loop("gone"), l.loop("fine")
	l.write("/sys/block/"+short+"/size", fmt.Sprintln(2*diskBytes/sectorBytes))
	l.remove(gone)
	got := l.erase(l.eraser(), protocol.EraseZero)
	for name, message := range map[string]string{readOnly: "", short: "bytes", gone: ""} {
		if d := got[name]; d.Result != protocol.ErasureFails || d.Message == "" || !strings.Contains(d.Message, message) {
			t.Errorf("%s: %+v", name, d)
		}
	}
	if got[fine].Result != protocol.Erased || !l.isZero(fine) {
		t.Errorf("a failing disk kept another from being erased: %+v", got[fine])
	}
}

// liar is a real device whose discard does what it is told to.
type liar struct {
	device
	discard func(offset, length int64) error
}

func (l *liar) Discard(offset, length int64) error { return l.discard(offset, length) }

func TestDiscardThatDoesNotWorkIsMadeUpFor(t *testing.T) {
	for name, discard := range map[string]func(int64, int64) error{
		"forgets nothing": func(int64, int64) error { return nil },
		"can't":           func(int64, int64) error { return errors.ErrUnsupported },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			data := l.loop("data")
			e := l.eraser()
			e.open = func(path string) (device, error) {
				opened, err := l.open(path)
				return &liar{device: opened, discard: discard}, err
			}
			got := l.erase(e, protocol.EraseDiscard)[data]
			if got.Result != protocol.Erased || !strings.Contains(got.Message, "zeroed") || !l.isZero(data) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// forgetful is a device that loses what was written to one place.
type forgetful struct {
	device
	at int64
}

func (f *forgetful) ReadAt(p []byte, offset int64) (int, error) {
	n, err := f.device.ReadAt(p, offset)
	if i := f.at - offset; i >= 0 && i < int64(n) {
		p[i] = 1
	}
	return n, err
}

func TestDataThatIsLeftIsFound(t *testing.T) {
	for _, at := range []int64{0, edge - 1, diskBytes - edge, diskBytes - 1} {
		l := newLab(t)
		data := l.loop("data")
		e := l.eraser()
		e.open = func(path string) (device, error) {
			opened, err := l.open(path)
			return &forgetful{device: opened, at: at}, err
		}
		got := l.erase(e, protocol.EraseZero)[data]
		if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, fmt.Sprintf("byte %d", at)) {
			t.Errorf("at %d: %+v", at, got)
		}
	}
}

func TestZeroWithoutTheKernelsHelp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	content := make([]byte, zeroChunk+12345)
	_, _ = rand.Read(content)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := &blockDevice{file}
	defer func() { _ = d.Close() }()
	if err := d.Zero(7, int64(len(content))-14); err != nil {
		t.Fatal(err)
	}
	after, _ := os.ReadFile(path)
	if len(bytes.Trim(after[7:len(after)-7], "\x00")) != 0 || !bytes.Equal(after[:7], content[:7]) ||
		!bytes.Equal(after[len(after)-7:], content[len(content)-7:]) {
		t.Error("wrote something else than the range")
	}
	if err := d.Discard(0, 4096); !errors.Is(err, errors.ErrUnsupported) && err != nil {
		t.Errorf("discarding: %v", err)
	}
}

func TestUnusedMappingIsTakenDown(t *testing.T) {
	l := newLab(t)
	data := l.loop("data")
	l.mapping("dm-0", map[string]string{"dm/name": "vg-osd\n"}, data)
	l.mapping("md0", map[string]string{"md/level": "raid1\n"}, "dm-0")
	said := &commands{}
	e := l.eraser()
	e.Commands = said
	if got := l.erase(e, protocol.EraseZero)[data]; got.Result != protocol.Erased {
		t.Errorf("got %+v", got)
	}
	if want := "mdadm --stop " + e.device("md0") + "\ndmsetup remove vg-osd\n"; said.all != want {
		t.Errorf("ran\n%s", said.all)
	}
	said.fails = errors.New("Device or resource busy")
	got := l.erase(e, protocol.EraseZero)[data]
	if got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "held by md0") || !strings.Contains(got.Message, "busy") {
		t.Errorf("got %+v", got)
	}
	l.mapping("bcache0", nil, "md0")
	said.fails = nil
	if got := l.erase(e, protocol.EraseZero)[data]; got.Result != protocol.ErasureFails || !strings.Contains(got.Message, "held by bcache0") {
		t.Errorf("got %+v", got)
	}
}

type commands struct {
	all   string
	fails error
}

func (c *commands) Run(_ context.Context, _ string, args ...string) (string, error) {
	c.all += strings.Join(args, " ") + "\n"
	return "", c.fails
}

// reset is a reset that did its part.
type reset struct{ result agent.Result }

func (r reset) Run(context.Context, state.Operation, func(string)) (agent.Result, error) {
	return r.result, nil
}
func (reset) Abort(state.Operation) error  { return nil }
func (reset) Settle(state.Operation) error { return nil }

func (l *lab) runner(e *Eraser) *Runner {
	l.t.Helper()
	files, err := state.NewDir(filepath.Join(l.dir, "state"))
	if err != nil {
		l.t.Fatal(err)
	}
	return &Runner{
		Runner: reset{agent.Result{State: protocol.StateSucceeded, Message: "note"}}, Documents: files, Eraser: e,
		Log: slog.New(slog.DiscardHandler),
	}
}

func resetOf(method string) state.Operation {
	return state.Operation{Operation: protocol.Operation{Type: protocol.OperationReset, ID: "r", Erase: method}}
}

func TestFailedDiskFailsTheReset(t *testing.T) {
	l := newLab(t)
	broken, data := l.readOnly("broken"), l.loop("data")
	r := l.runner(l.eraser())
	result, err := r.Run(t.Context(), resetOf(protocol.EraseZero), func(string) {})
	if err != nil || result.State != protocol.StateFailed || result.Step != "erase" ||
		!strings.Contains(result.Message, broken) || strings.Contains(result.Message, data) || len(result.Erased) != 2 {
		t.Errorf("got %+v, %v", result, err)
	}
}

func TestNothingIsErasedUnasked(t *testing.T) {
	l := newLab(t)
	data := l.loop("data")
	for name, test := range map[string]struct {
		op    state.Operation
		inner protocol.OperationState
		want  protocol.OperationState
	}{
		"no erasure":     {resetOf(""), protocol.StateSucceeded, protocol.StateSucceeded},
		"a failed reset": {resetOf(protocol.EraseZero), protocol.StateFailed, protocol.StateFailed},
		"another method": {resetOf("Shred"), protocol.StateSucceeded, protocol.StateFailed},
	} {
		r := l.runner(l.eraser())
		r.Runner = reset{agent.Result{State: test.inner}}
		result, err := r.Run(t.Context(), test.op, func(string) {})
		if err != nil || result.State != test.want || len(result.Erased) != 0 {
			t.Errorf("%s: %+v, %v", name, result, err)
		}
	}
	if l.isZero(data) {
		t.Error("erased")
	}
}

// slow is a real device with something to do before it is zeroed.
type slow struct {
	device
	zero func() error
}

func (s *slow) Zero(offset, length int64) error {
	if err := s.zero(); err != nil {
		return err
	}
	return s.device.Zero(offset, length)
}

// watched tells of the first document written.
type watched struct {
	state.Files
	written chan struct{}
	once    sync.Once
}

func (w *watched) Write(name string, data []byte) error {
	err := w.Files.Write(name, data)
	w.once.Do(func() { close(w.written) })
	return err
}

// TestDiskWithoutSerialNumberIsNeverOnRecord: after a boot it may have another name.
func TestDiskWithoutSerialNumberIsNeverOnRecord(t *testing.T) {
	l := newLab(t)
	nameless := l.loop("nameless")
	l.write("/sys/block/"+nameless+"/device/serial", "")
	_, err := l.eraser().Erase(t.Context(), protocol.EraseZero, Done{"": true}, func(key string) error {
		return errors.New("recorded " + key)
	}, func(string) {})
	if err != nil || !l.isZero(nameless) {
		t.Errorf("got %v", err)
	}
}

// TestErasureGoesOnAfterAPowerCut ends the first attempt when one disk is done,
// and has the second find that out.
func TestErasureGoesOnAfterAPowerCut(t *testing.T) {
	l := newLab(t)
	first, second := l.loop("first"), l.loop("second")
	ctx, cut := context.WithCancelCause(t.Context())
	power := errors.New("power cut")
	var mu sync.Mutex
	zeroed := map[string]int{}
	// The disk that is done has to be on record before the power goes.
	recorded := make(chan struct{})
	e := l.eraser()
	e.open = func(path string) (device, error) {
		opened, err := l.open(path)
		name := filepath.Base(path)
		return &slow{device: opened, zero: func() error {
			if name == second && ctx.Err() == nil {
				<-recorded
				cut(power)
				return power
			}
			mu.Lock()
			defer mu.Unlock()
			zeroed[name]++
			return nil
		}}, err
	}
	r := l.runner(e)
	r.Documents = &watched{Files: r.Documents, written: recorded}
	if _, err := r.Run(ctx, resetOf(protocol.EraseZero), func(string) {}); !errors.Is(err, power) {
		t.Fatalf("the first attempt ended with %v", err)
	}
	result, err := l.runner(e).Run(t.Context(), resetOf(protocol.EraseZero), func(string) {})
	if err != nil || result.State != protocol.StateSucceeded || len(result.Erased) != 2 || result.Message != "note" {
		t.Fatalf("got %+v, %v", result, err)
	}
	if zeroed[first] != 1 || zeroed[second] != 1 {
		t.Errorf("zeroed %v: a disk that is done is done", zeroed)
	}
	// Somebody wrote to the disk that was done: it is erased again.
	l.overwrite(first, 4096, []byte("new data"))
	if _, err := l.runner(e).Run(t.Context(), resetOf(protocol.EraseZero), func(string) {}); err != nil || !l.isZero(first) {
		t.Errorf("what was written later is left: %v", err)
	}
}

func TestMeterIsBounded(t *testing.T) {
	var shown []string
	m := &meter{show: func(step string) { shown = append(shown, step) }, percents: map[string]int{}}
	for percent := range 101 {
		m.at("sda", percent)
	}
	if len(shown) != 11 || shown[3] != "erase sda 30%" || shown[10] != "erase" {
		t.Errorf("shows %q", shown)
	}
	for i := range 60 {
		m.at(fmt.Sprintf("disk-%d", i), 10)
	}
	if last := shown[len(shown)-1]; len(last) > maxStep {
		t.Errorf("%d bytes", len(last))
	}
}

func TestErasureIsKeptUntilItIsReported(t *testing.T) {
	files, err := state.NewDir(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	op, err := store.Begin(resetOf(protocol.EraseZero))
	if err != nil {
		t.Fatal(err)
	}
	op.State, op.Erased = protocol.StateFailed, []protocol.ErasedDisk{{Name: "sdb", Result: protocol.ErasureFails}}
	if err := store.Finish(op); err != nil {
		t.Fatal(err)
	}
	kept, _ := store.Operation(op.Type, op.ID)
	if report := kept.Report(); len(report.Erased) != 1 || report.Erased[0].Name != "sdb" {
		t.Errorf("reports %+v", report)
	}
	if again, err := store.Begin(op); err != nil || again.Erased != nil {
		t.Errorf("the next attempt begins with %+v, %v", again.Erased, err)
	}
}
