package embedded

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

func TestMakeFolder(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("TMPDIR", t.TempDir())
	folder, temporary, err := Options{}.makeFolder()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(temporary).To(BeTrue())
	g.Expect(folder).To(BeADirectory())

	wanted := filepath.Join(t.TempDir(), "a", "b")
	folder, temporary, err = Options{Folder: wanted}.makeFolder()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(temporary).To(BeFalse())
	g.Expect(folder).To(Equal(wanted))

	g.Expect(os.Chmod(wanted, 0o755)).To(Succeed())
	_, _, err = Options{Folder: wanted}.makeFolder()
	g.Expect(err).NotTo(HaveOccurred(), "it is empty")
	info, err := os.Stat(wanted)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o700)), "it gets keys")

	g.Expect(os.WriteFile(filepath.Join(wanted, "kubeconfig"), nil, 0o600)).To(Succeed())
	_, _, err = Options{Folder: wanted}.makeFolder()
	g.Expect(err).To(MatchError(errNotEmpty), "another cluster may run there")
}
