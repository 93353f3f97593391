package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
)

// What is in a folder can be used like any other file, and no link leads out of it.
func TestWithin(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	inside, outside := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(inside)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = root.Close() }()
	w := durable.Within{Root: root}
	g.Expect(w.Mkdir("a")).To(Succeed())
	write := func(path string) error {
		return durable.Stream(w, path, func(f durable.File) error {
			_, err := f.Write([]byte("text"))
			return err
		})
	}
	g.Expect(write("a/b")).To(Succeed())
	g.Expect(filepath.Join(inside, "a/b")).To(BeARegularFile())
	f, size, err := w.Overwrite("a/b")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(size).To(BeEquivalentTo(4))
	g.Expect(f.Close()).To(Succeed())

	g.Expect(os.Symlink(outside, filepath.Join(inside, "link"))).To(Succeed())
	g.Expect(w.Stat("link")).To(Succeed())
	g.Expect(write("link/b")).NotTo(Succeed())
	files, folders, err := w.Walk(".")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).To(ConsistOf("a/b"))
	g.Expect(folders).To(ConsistOf(".", "a"))
	g.Expect(os.ReadDir(outside)).To(BeEmpty())
}
