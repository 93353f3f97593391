package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Workload is a container image with one layer.
type Workload struct {
	// Name is its reference, with tag.
	Name string
	// Files maps paths in the image to files on this machine.
	Files map[string]string
	// Base is a tar file whose content comes first; empty for none.
	Base string
	// Entrypoint is the command it runs; may be empty.
	Entrypoint []string
}

// WriteArchive writes images into a file as "docker save" does; containerd, Docker and kind load it.
func WriteArchive(file string, workloads ...Workload) (err error) {
	temp, err := os.MkdirTemp(filepath.Dir(file), "new-")
	if err != nil {
		return fmt.Errorf("making a folder for the archive: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	out, err := os.Create(filepath.Join(temp, "archive.tar"))
	if err != nil {
		return fmt.Errorf("making the archive: %w", err)
	}
	defer func() { _ = out.Close() }()

	w := tar.NewWriter(out)
	var manifest []manifestEntry
	for i, workload := range workloads {
		entry, err := addWorkload(w, workload, strconv.Itoa(i), temp)
		if err != nil {
			return fmt.Errorf("adding image %s: %w", workload.Name, err)
		}
		manifest = append(manifest, entry)
	}
	if err := addJSON(w, "manifest.json", manifest); err != nil {
		return fmt.Errorf("adding the manifest: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("finishing the archive: %w", err)
	}
	if err := os.Rename(out.Name(), file); err != nil {
		return fmt.Errorf("placing the archive: %w", err)
	}
	return nil
}

type manifestEntry struct {
	Config   string
	RepoTags []string
	Layers   []string
}

type imageConfig struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type containerConfig struct {
	Env        []string `json:"Env"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// addWorkload adds an image's layer and configuration under a folder of the archive.
func addWorkload(w *tar.Writer, workload Workload, folder, temp string) (manifestEntry, error) {
	layer := filepath.Join(temp, "layer.tar")
	digest, err := writeLayer(layer, workload)
	if err != nil {
		return manifestEntry{}, fmt.Errorf("writing its layer: %w", err)
	}
	entry := manifestEntry{
		Config: folder + "/config.json", RepoTags: []string{workload.Name}, Layers: []string{folder + "/layer.tar"},
	}
	if err := addFile(w, entry.Layers[0], layer, 0o644); err != nil {
		return manifestEntry{}, err
	}
	return entry, addJSON(w, entry.Config, imageConfig{
		Architecture: architecture, OS: "linux",
		Config: containerConfig{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: workload.Entrypoint,
		},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + digest}},
	})
}

// writeLayer writes an image's only layer to a file and returns its SHA-256.
func writeLayer(file string, workload Workload) (digest string, err error) {
	out, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }()
	hash := sha256.New()
	w := tar.NewWriter(io.MultiWriter(out, hash))
	if workload.Base != "" {
		if err := copyTar(w, workload.Base); err != nil {
			return "", err
		}
	}
	for _, target := range sortedKeys(workload.Files) {
		if err := addFile(w, strings.TrimPrefix(target, "/"), workload.Files[target], 0o755); err != nil {
			return "", err
		}
	}
	if err := w.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// copyTar adds the entries of a tar file to w.
func copyTar(w *tar.Writer, file string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	r := tar.NewReader(in)
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.CopyN(w, r, header.Size); err != nil {
			return fmt.Errorf("copying %s from %s: %w", header.Name, file, err)
		}
	}
}

// addFile adds a file of this machine to w, owned by root and without its time, so that equal input gives equal output.
func addFile(w *tar.Writer, name, file string, mode int64) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: info.Size(), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}

// addBytes adds a file with content to w.
func addBytes(w *tar.Writer, name string, content []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0)}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}

func addJSON(w *tar.Writer, name string, value any) error {
	content, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return addBytes(w, name, content, 0o644)
}
