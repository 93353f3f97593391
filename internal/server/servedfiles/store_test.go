package servedfiles_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/server/servedfiles"
)

// maxBytes is the limit of the tests.
const maxBytes = 1 << 20

type fixture struct {
	*WithT
	t      *testing.T
	folder string
	clock  *clocktesting.FakeClock
	store  *servedfiles.Store
	// changed receives a value after each change.
	changed chan struct{}
	logs    strings.Builder
}

func (f *fixture) write(name, content string) string {
	f.t.Helper()
	f.Expect(os.WriteFile(filepath.Join(f.folder, name), []byte(content), 0o644)).To(Succeed())
	return digest(content)
}

func digest(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// start starts a store of the folder.
func (f *fixture) start(folders ...string) {
	f.t.Helper()
	f.clock, f.changed = clocktesting.NewFakeClock(time.Now()), make(chan struct{}, 10)
	ctx := ctrl.LoggerInto(f.t.Context(), funcr.New(func(_, line string) { f.logs.WriteString(line + "\n") }, funcr.Options{}))
	f.store = servedfiles.New(servedfiles.Options{Folders: append([]string{f.folder}, folders...), MaxBytes: maxBytes}, f.clock)
	f.Expect(f.store.Scanned()).To(BeFalse())
	f.store.Scan(ctx)
	f.Expect(f.store.Scanned()).To(BeTrue())
	f.store.Subscribe(func() { f.changed <- struct{}{} })
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.store.Start(ctx) }()
	f.t.Cleanup(func() {
		cancel()
		f.Expect(<-done).To(Succeed())
	})
	f.Eventually(f.clock.HasWaiters, "1m").Should(BeTrue())
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return &fixture{WithT: NewWithT(t), t: t, folder: t.TempDir()}
}

// scanned makes the store scan the folder again, and waits for the change.
func (f *fixture) scanned() {
	f.t.Helper()
	f.Eventually(f.clock.HasWaiters, "1m").Should(BeTrue())
	f.clock.Step(10 * time.Second)
	f.Eventually(f.changed, "1m").Should(Receive())
}

func (f *fixture) content(digest string) string {
	f.t.Helper()
	opened, err := f.store.Open(digest)
	f.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = opened.Close() }()
	text, err := io.ReadAll(opened)
	f.Expect(err).NotTo(HaveOccurred())
	return string(text)
}

func TestFilesAreFoundByDigest(t *testing.T) {
	f := newFixture(t)
	other := t.TempDir()
	one := f.write("one", "agent 1")
	f.Expect(os.WriteFile(filepath.Join(other, "x"), []byte("agent 2"), 0o600)).To(Succeed())
	f.start(other, filepath.Join(other, "missing"))
	f.Expect(f.content(one)).To(Equal("agent 1"))
	f.Expect(f.content(digest("agent 2"))).To(Equal("agent 2"))
	f.Expect(f.store.Has(one)).To(BeTrue())
	for _, unknown := range []string{"", "one", strings.ToUpper(one), digest("agent 3"), "../one"} {
		f.Expect(f.store.Has(unknown)).To(BeFalse())
		_, err := f.store.Open(unknown)
		f.Expect(err).To(MatchError(servedfiles.ErrNotFound))
	}
	f.Expect(f.logs.String()).To(BeEmpty())
}

// The first folder with a file of that name decides.
func TestFilesAreFoundByName(t *testing.T) {
	f := newFixture(t)
	second := t.TempDir()
	for _, name := range []string{"agent", "other"} {
		f.Expect(os.WriteFile(filepath.Join(second, name), []byte(name+" of the second"), 0o600)).To(Succeed())
	}
	want := f.write("agent", "agent of the first")
	f.start(second)
	got, found := f.store.Named("agent")
	f.Expect([]any{got, found}).To(Equal([]any{want, true}))
	got, found = f.store.Named("other")
	f.Expect([]any{got, found}).To(Equal([]any{digest("other of the second"), true}))
	for _, unknown := range []string{"", "none", "../" + filepath.Base(second) + "/other"} {
		_, found = f.store.Named(unknown)
		f.Expect(found).To(BeFalse(), unknown)
	}
}

func TestChangedFilesAreHashedAgain(t *testing.T) {
	f := newFixture(t)
	one := f.write("agent", "agent 1")
	f.start()
	two := f.write("agent", "agent 22")
	_, err := f.store.Open(one)
	f.Expect(err).To(MatchError(servedfiles.ErrNotFound), "the file has changed")
	f.scanned()
	f.Expect(f.store.Has(one)).To(BeFalse())
	f.Expect(f.content(two)).To(Equal("agent 22"))

	// Another file with the same size and time, as after a copy that preserves times.
	path := filepath.Join(f.folder, "agent")
	info, err := os.Stat(path)
	f.Expect(err).NotTo(HaveOccurred())
	three := f.write("new", "agent 33")
	f.Expect(os.Chtimes(filepath.Join(f.folder, "new"), info.ModTime(), info.ModTime())).To(Succeed())
	f.Expect(os.Rename(filepath.Join(f.folder, "new"), path)).To(Succeed())
	f.scanned()
	f.Expect(f.content(three)).To(Equal("agent 33"))

	f.Expect(os.Remove(path)).To(Succeed())
	_, err = f.store.Open(three)
	f.Expect(err).To(MatchError(servedfiles.ErrNotFound))
	f.scanned()
	f.Expect(f.store.Has(three)).To(BeFalse())
}

// Only regular files of an allowed size are served. Others don't affect them.
func TestOnlyRegularFilesAreServed(t *testing.T) {
	f := newFixture(t)
	secret := filepath.Join(t.TempDir(), "secret")
	f.Expect(os.WriteFile(secret, []byte("secret"), 0o600)).To(Succeed())
	f.Expect(os.Symlink(secret, filepath.Join(f.folder, "link"))).To(Succeed())
	f.Expect(os.Mkdir(filepath.Join(f.folder, "folder"), 0o700)).To(Succeed())
	f.Expect(unix.Mkfifo(filepath.Join(f.folder, "pipe"), 0o600)).To(Succeed())
	largest := filepath.Join(f.folder, "largest")
	f.Expect(os.WriteFile(largest, nil, 0o600)).To(Succeed())
	f.Expect(os.Truncate(largest, maxBytes)).To(Succeed())
	tooLarge := filepath.Join(f.folder, "too-large")
	f.Expect(os.WriteFile(tooLarge, nil, 0o600)).To(Succeed())
	f.Expect(os.Truncate(tooLarge, maxBytes+1)).To(Succeed())
	good := f.write("good", "agent")
	f.start()
	f.Expect(f.store.Has(good)).To(BeTrue())
	f.Expect(f.store.Has(digest("secret"))).To(BeFalse())
	zeros := sha256.New()
	_, err := io.CopyN(zeros, zero{}, maxBytes)
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(f.store.Has(hex.EncodeToString(zeros.Sum(nil)))).To(BeTrue())
	_, _ = zeros.Write([]byte{0})
	f.Expect(f.store.Has(hex.EncodeToString(zeros.Sum(nil)))).To(BeFalse())
	f.Expect(f.logs.String()).To(ContainSubstring("too-large"))

	// The problem is logged once.
	f.write("another", "agent 2")
	f.scanned()
	f.Expect(strings.Count(f.logs.String(), "too-large")).To(Equal(1))
}

type zero struct{}

func (zero) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

func TestFilesOfAFolderAreBounded(t *testing.T) {
	f := newFixture(t)
	for i := range 70 {
		f.write(string(rune('A'+i)), string(rune('A'+i)))
	}
	f.start()
	served := 0
	for i := range 70 {
		if f.store.Has(digest(string(rune('A' + i)))) {
			served++
		}
	}
	f.Expect(served).To(Equal(64))
	f.Expect(f.logs.String()).To(ContainSubstring("only 64 of 70 files are served"))
}

// A file is served as soon as it is hashed, before the next is.
func TestFilesAreServedWhileOthersAreHashed(t *testing.T) {
	f := newFixture(t)
	first := f.write("1", "bundle 1")
	second := f.write("2", "bundle 2")
	store := servedfiles.New(servedfiles.Options{Folders: []string{f.folder}, MaxBytes: maxBytes}, clocktesting.NewFakeClock(time.Now()))
	var seen [][]bool
	store.Subscribe(func() { seen = append(seen, []bool{store.Has(first), store.Has(second), store.Scanned()}) })
	store.Scan(t.Context())
	f.Expect(seen).To(Equal([][]bool{{true, false, false}, {true, true, false}, {true, true, true}}))
}

// A manager that stops does not finish hashing first, and does not take what it has not looked
// at for missing.
func TestHashingIsCancelled(t *testing.T) {
	f := newFixture(t)
	digest := f.write("bundle", "bundle")
	store := servedfiles.New(servedfiles.Options{Folders: []string{f.folder}, MaxBytes: maxBytes}, clocktesting.NewFakeClock(time.Now()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.Scan(ctx)
	f.Expect(store.Scanned()).To(BeFalse())
	f.Expect(store.Has(digest)).To(BeFalse())
	store.Scan(t.Context())
	f.Expect(store.Has(digest)).To(BeTrue())
}
