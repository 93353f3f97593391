package upload_test

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/snapshot/upload"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// shareRig is a host whose snapshots are copied to a folder.
type shareRig struct {
	*WithT
	source  files
	content []byte
	// state has the host's snapshots, and share is the folder.
	state, share string
	uploader     *upload.Uploader
	want         protocol.EtcdSnapshotUpload
	system       *hooks
}

// hooks make calls of the share hang or fail: create is called before a file is created, and sync
// before one is synced; nil does nothing.
type hooks struct {
	create, sync func() error
}

// shareSystem is a folder of the share.
type shareSystem struct {
	durable.System
	*hooks
}

func (s shareSystem) Create(path string) (durable.File, error) {
	if s.create != nil {
		if err := s.create(); err != nil {
			return nil, err
		}
	}
	file, err := s.System.Create(path)
	return shareFile{file, s.hooks}, err
}

type shareFile struct {
	durable.File
	*hooks
}

func (f shareFile) Sync() error {
	if f.sync != nil {
		if err := f.sync(); err != nil {
			return err
		}
	}
	return f.File.Sync()
}

// SyncDir fails as on a share of SMB.
func (s shareSystem) SyncDir(path string) error {
	return &fs.PathError{Op: "sync", Path: path, Err: syscall.EINVAL}
}

const authority = "0123456789abcdef"

func newShareRig(t *testing.T) *shareRig {
	t.Helper()
	r := &shareRig{WithT: NewWithT(t), state: t.TempDir(), share: t.TempDir(), system: &hooks{}}
	r.source, r.content = snapshotOf(t, 3_000_001)
	r.source.facts.ID = "20260101T010000Z"
	folder := filepath.Join(r.state, authority)
	r.Expect(os.Rename(r.source.folder, folder)).To(Succeed())
	r.source.folder = folder
	r.Expect(os.Rename(filepath.Join(folder, "1"), filepath.Join(folder, r.source.facts.ID))).To(Succeed())
	r.uploader = &upload.Uploader{Source: r.source, Log: slog.New(slog.DiscardHandler), Copier: &upload.Copier{
		System: func(in *os.Root) durable.System { return shareSystem{durable.Within{Root: in}, r.system} },
		IsMountPoint: func(path string) (bool, error) {
			is, err := upload.IsMountPoint(path)
			return is || path == r.share, err
		},
	}}
	identity := newIdentity(t)
	r.want = wanted(identity)
	r.want.ID = r.source.facts.ID
	r.want.Folder = &protocol.EtcdSnapshotFolder{Path: r.share, HostName: "host.example", Keep: 2}
	t.Cleanup(func() {
		for name, content := range r.files() {
			r.Expect(unpack(t, content, identity)[r.source.facts.ID+".db"]).To(Equal(r.content), name)
		}
	})
	return r
}

// files are the complete snapshots of the host in the folder of the cluster.
func (r *shareRig) files() map[string][]byte {
	found, err := filepath.Glob(filepath.Join(r.share, authority, "*.host.example.tar.age"))
	r.Expect(err).NotTo(HaveOccurred())
	files := map[string][]byte{}
	for _, path := range found {
		if files[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			r.Expect(err).NotTo(HaveOccurred())
		}
	}
	return files
}

// names are the names of everything in the folder of the cluster.
func (r *shareRig) names() []string {
	entries, err := os.ReadDir(filepath.Join(r.share, authority))
	r.Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A snapshot is copied once, encrypted, and the oldest ones of all hosts are removed.
func TestThreat100_CopiesToAFolder(t *testing.T) {
	r := newShareRig(t)
	folder := filepath.Join(r.share, authority)
	r.Expect(os.Mkdir(folder, 0o700)).To(Succeed())
	for _, name := range []string{"20250101T010000Z.other.tar.age", "20251231T010000Z.other.tar.age", "notes.txt"} {
		r.Expect(os.WriteFile(filepath.Join(folder, name), nil, 0o600)).To(Succeed())
	}
	done, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).NotTo(HaveOccurred())
	name := "20260101T010000Z.host.example.tar.age"
	content := r.files()[name]
	r.Expect(done).To(Equal(protocol.EtcdSnapshotObject{
		ID: "20260101T010000Z", Object: filepath.Join(folder, name), SizeBytes: int64(len(content)), SHA256: digest(content),
	}))
	r.Expect(r.names()).To(ConsistOf(name, "20251231T010000Z.other.tar.age", "notes.txt"))
	info, err := os.Stat(done.Object)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o600)))

	r.system.create = func() error { return fmt.Errorf("nothing is written again") }
	again, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(again).To(Equal(done), "the report was lost")
}

// An attempt that was interrupted leaves nothing that counts, and the next one completes.
func TestCopyIsInterrupted(t *testing.T) {
	r := newShareRig(t)
	r.system.create = func() error { return syscall.ENOSPC }
	_, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).To(MatchError(syscall.ENOSPC))
	r.Expect(r.files()).To(BeEmpty())

	// A power cut leaves a part under either name.
	r.system.create = nil
	partial := filepath.Join(r.share, authority, ".host.example.partial")
	for _, path := range []string{partial, durable.Temporary(partial), filepath.Join(r.share, authority, "20260101T010000Z.host.example.tar.age")} {
		r.Expect(os.WriteFile(path, []byte("part"), 0o600)).To(Succeed())
	}
	_, err = r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.names()).To(ConsistOf("20260101T010000Z.host.example.tar.age"))
}

// Nothing is written into the place that a share is mounted at while it is not mounted, nor
// outside of the folder.
func TestThreat100_CopyNeedsTheShare(t *testing.T) {
	r := newShareRig(t)
	place := t.TempDir()
	for what, folder := range map[string]protocol.EtcdSnapshotFolder{
		"nothing is mounted":       {Path: place, HostName: "h", Keep: 1},
		"no such file":             {Path: filepath.Join(place, "missing"), HostName: "h", Keep: 1},
		"no valid folder":          {Path: r.share, HostName: "../../h", Keep: 1},
		"sent no valid folder":     {Path: "mnt", HostName: "h", Keep: 1},
		"file is not a folder":     {Path: filepath.Join(place, "file"), HostName: "h", Keep: 1},
		authority + " is not a fo": {Path: r.share, HostName: "h", Keep: 1},
	} {
		_ = os.Remove(filepath.Join(r.share, authority))
		r.Expect(os.WriteFile(filepath.Join(place, "file"), nil, 0o600)).To(Succeed())
		r.Expect(os.Symlink(place, filepath.Join(r.share, authority))).To(Succeed())
		r.want.Folder = &folder
		_, err := r.uploader.Upload(t.Context(), r.want)
		r.Expect(err).To(MatchError(ContainSubstring(what)))
	}
	entries, err := os.ReadDir(place)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(entries).To(HaveLen(1), "the file of this test")
}

// Whoever can write to the share replaces the folder of the cluster by a link while a snapshot is copied.
// Nothing is written, replaced or removed at the other end of the link.
func TestThreat100_LinkInPlaceOfTheFolder(t *testing.T) {
	r := newShareRig(t)
	folder, place := filepath.Join(r.share, authority), t.TempDir()
	old := "20250101T010000Z.other.tar.age"
	r.Expect(os.WriteFile(filepath.Join(place, old), nil, 0o600)).To(Succeed())
	r.want.Folder.Keep = 1
	r.system.create = func() error {
		r.Expect(os.Rename(folder, folder+".moved")).To(Succeed())
		return os.Symlink(place, folder)
	}
	_, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.names()).To(ConsistOf(old))
	r.Expect(filepath.Join(folder+".moved", "20260101T010000Z.host.example.tar.age")).To(BeARegularFile())
}

// A slow share gets the time that it needs, as long as it answers.
func TestShareIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t)
		r.system.sync = func() error {
			time.Sleep(50 * time.Second)
			return nil
		}
		_, err := r.uploader.Upload(t.Context(), r.want)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(r.files()).To(HaveLen(1))
	})
}

// A snapshot that ends too early, such as one that is damaged meanwhile, gets no copy.
func TestCopyOfAPart(t *testing.T) {
	r := newShareRig(t)
	r.Expect(os.Truncate(filepath.Join(r.source.folder, r.source.facts.ID), 1_000_000)).To(Succeed())
	_, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).To(MatchError(io.ErrUnexpectedEOF))
	r.Expect(r.names()).To(BeEmpty())
}

// A copy that comes late removes no newer one.
func TestLateCopy(t *testing.T) {
	r := newShareRig(t)
	r.want.Folder.Keep = 1
	newer := "20260101T020000Z.other.tar.age"
	r.Expect(os.Mkdir(filepath.Join(r.share, authority), 0o700)).To(Succeed())
	r.Expect(os.WriteFile(filepath.Join(r.share, authority, newer), nil, 0o600)).To(Succeed())
	_, err := r.uploader.Upload(t.Context(), r.want)
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(r.names()).To(ConsistOf("20260101T010000Z.host.example.tar.age", newer))
}

func TestIsMountPoint(t *testing.T) {
	g := NewWithT(t)
	for path, want := range map[string]bool{"/proc": true, "/proc/self": false, t.TempDir(): false} {
		is, err := upload.IsMountPoint(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(is).To(Equal(want), path)
	}
}

// A share whose server is unreachable holds up neither the agent nor its stop, and gets one goroutine.
func TestShareHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newShareRig(t)
		answer := make(chan struct{})
		r.system.create = func() error {
			<-answer
			return nil
		}
		_, err := r.uploader.Upload(t.Context(), r.want)
		r.Expect(err).To(MatchError(ContainSubstring("has not answered for 1m0s")))
		_, err = r.uploader.Upload(t.Context(), r.want)
		r.Expect(err).To(MatchError(ContainSubstring("has not answered since the last attempt")))
		close(answer)
		synctest.Wait()
		r.Expect(r.files()).To(BeEmpty(), "an attempt that has ended writes nothing")
		ctx, cancel := context.WithCancel(t.Context())
		answer = make(chan struct{})
		stopped := make(chan error)
		go func() {
			_, err := r.uploader.Upload(ctx, r.want)
			stopped <- err
		}()
		synctest.Wait()
		cancel()
		r.Expect(<-stopped).To(MatchError(context.Canceled))
		create := r.system.create
		r.system.create = nil
		other := r.want
		other.Folder = &protocol.EtcdSnapshotFolder{Path: r.share + "/.", HostName: "host.example", Keep: 2}
		_, err = r.uploader.Upload(t.Context(), other)
		r.Expect(err).NotTo(MatchError(ContainSubstring("has not answered")), "it is another folder")
		r.system.create = create
		close(answer)
		synctest.Wait()
		_, err = r.uploader.Upload(t.Context(), r.want)
		r.Expect(err).NotTo(HaveOccurred())
	})
}
