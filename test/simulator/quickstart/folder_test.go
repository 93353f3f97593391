package quickstart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/fleet/remote"
)

// asWorld has this program be a world, of a kind, in the folder that is its argument.
const asWorld = "BE_A_WORLD"

func TestMain(m *testing.M) {
	if kind := os.Getenv(asWorld); kind != "" {
		if err := beWorld(kind, Folder{Path: os.Args[1]}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func beWorld(kind string, f Folder) error {
	release, err := f.hold()
	if err != nil {
		return err
	}
	fmt.Println("I hold the folder")
	ended := make(chan struct{})
	switch kind {
	case "deaf":
	case "broken":
		return errors.New("there is no etcd")
	default:
		end, err := f.listen(func(what order) (Status, error) {
			if what.Stop {
				close(ended)
			}
			if what.Host == "nobody" {
				return Status{}, errors.New("there is no host nobody")
			}
			return Status{PID: os.Getpid(), Kubeconfig: string(what.Action) + what.Host}, nil
		})
		if err != nil {
			return err
		}
		defer end()
	}
	<-ended
	return release()
}

// start launches a world of a kind.
func start(t *testing.T, f Folder, kind string) (Status, []string, error) {
	t.Helper()
	t.Setenv(asWorld, kind)
	t.Cleanup(func() { _ = f.Down(context.Background()) })
	var said []string
	status, err := f.launch(t.Context(), os.Args[0], []string{f.Path}, func(line string) { said = append(said, line) })
	return status, said, err
}

func TestWorldInTheBackground(t *testing.T) {
	g := NewWithT(t)
	// Longer than what the kernel takes for the address of a socket.
	f := Folder{Path: filepath.Join(t.TempDir(), strings.Repeat("long", 50))}
	g.Expect(f.Prepare()).To(Succeed())
	_, said, err := start(t, f, "good")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(said).To(Equal([]string{"I hold the folder"}))
	g.Expect(f.Prepare()).To(MatchError(ErrRuns))
	g.Expect(f.Do(t.Context(), remote.Reboot, "nobody")).To(MatchError("there is no host nobody"))
	g.Expect(f.Do(t.Context(), remote.Reboot, "host-1")).To(Succeed())
	_, said, err = start(t, f, "good")
	g.Expect(err).To(MatchError(ErrRuns))
	g.Expect(said[len(said)-1]).To(ContainSubstring("runs already"))
	g.Expect(f.Down(t.Context())).To(Succeed())
	g.Expect(f.Path).NotTo(BeADirectory())
	g.Expect(f.Down(t.Context())).To(Succeed(), "there is nothing any more")
	_, err = f.Status(t.Context())
	g.Expect(err).To(MatchError(ContainSubstring("make quickstart starts")))
}

func TestWorldThatDoesNotStart(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: filepath.Join(t.TempDir(), "f")}
	g.Expect(f.Prepare()).To(Succeed())
	_, said, err := start(t, f, "broken")
	g.Expect(err).To(MatchError(ContainSubstring("whose last line says why")))
	g.Expect(said[len(said)-1]).To(Equal("there is no etcd"))
	// What it left is in nobody's way.
	g.Expect(f.Prepare()).To(Succeed())
	g.Expect(f.Log()).NotTo(BeAnExistingFile())
}

func TestWorldThatDoesNotListenIsKilled(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: filepath.Join(t.TempDir(), "f")}
	g.Expect(f.Prepare()).To(Succeed())
	t.Setenv(asWorld, "deaf")
	ctx, cancel := context.WithCancel(t.Context())
	_, err := f.launch(ctx, os.Args[0], []string{f.Path}, func(string) { cancel() })
	g.Expect(err).To(MatchError(context.Canceled))
	began := time.Now()
	g.Expect(f.Down(t.Context())).To(Succeed())
	g.Expect(time.Since(began)).To(BeNumerically("<", killTimeout))
	g.Expect(f.Path).NotTo(BeADirectory())
}

// A folder that is not a quickstart's is not touched.
func TestFolderOfSomebodyElse(t *testing.T) {
	g := NewWithT(t)
	f := Folder{Path: t.TempDir()}
	file := filepath.Join(f.Path, "thesis.tex")
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Expect(f.Prepare()).To(MatchError(ContainSubstring("name another one")))
	g.Expect(f.Down(t.Context())).To(MatchError(ContainSubstring("name another one")))
	g.Expect(file).To(BeAnExistingFile())
}
