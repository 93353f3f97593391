package build

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// The folders below the one that a bundle is made of.
const (
	binFolder    = "bin"
	cniFolder    = "cni"
	unitsFolder  = "units"
	filesFolder  = "files"
	imagesFolder = "images"
)

// Where files of these folders belong on hosts.
const (
	binDestination   = "/usr/local/bin"
	cniDestination   = "/opt/cni/bin"
	unitsDestination = "/etc/systemd/system"
)

// checkFolder accepts the folders that place knows, and those in units and files.
func checkFolder(name string) error {
	top, _, nested := strings.Cut(name, "/")
	switch top {
	case ".", unitsFolder, filesFolder:
		return nil
	case binFolder, cniFolder, imagesFolder:
		if !nested {
			return nil
		}
		return fmt.Errorf("%s is a folder in %s: put the files directly into %s, or below %s", name, top, top, filesFolder)
	default:
		return errUnknown(name)
	}
}

func errUnknown(name string) error {
	return fmt.Errorf("%s is not in one of the folders %s, %s, %s, %s and %s: move or remove it",
		name, binFolder, cniFolder, unitsFolder, filesFolder, imagesFolder)
}

// place decides what a file is, and where it belongs on hosts.
func place(name string, mode fs.FileMode) (bundle.File, error) {
	top, rest, _ := strings.Cut(name, "/")
	f := bundle.File{Name: name, Mode: 0o644}
	switch {
	case rest == "":
		return bundle.File{}, errUnknown(name)
	case top == binFolder:
		f.Kind, f.Path, f.Mode = bundle.KindProgram, path.Join(binDestination, rest), 0o755
	case top == cniFolder:
		f.Kind, f.Path, f.Mode = bundle.KindProgram, path.Join(cniDestination, rest), 0o755
	case top == unitsFolder:
		f.Kind, f.Path = bundle.KindUnit, path.Join(unitsDestination, rest)
	case top == imagesFolder && strings.HasSuffix(rest, ".tar"):
		f.Kind = bundle.KindImage
	case top == imagesFolder:
		return bundle.File{}, fmt.Errorf("%s is no .tar file: export the image as a tar archive, for example by `ctr images export`", name)
	default:
		f.Path = "/" + rest
		f.Kind, f.Mode = classify(f.Path, mode.Perm())
	}
	return f, nil
}

// classify decides what a file in a tree of the host is. The umask of whoever made the tree
// has no influence: of the permissions only two facts are kept.
func classify(destination string, permissions fs.FileMode) (bundle.Kind, bundle.Mode) {
	executable, private := permissions&0o100 != 0, permissions&0o077 == 0
	switch {
	case below(destination, bundle.KindUnit):
		return bundle.KindUnit, 0o644
	case executable && below(destination, bundle.KindProgram):
		return bundle.KindProgram, 0o755
	case executable:
		return bundle.KindFile, 0o755
	case private:
		return bundle.KindFile, 0o600
	default:
		return bundle.KindFile, 0o644
	}
}

// below reports whether files of that kind may be at the destination.
func below(destination string, k bundle.Kind) bool {
	for _, folder := range bundle.Destinations(k) {
		if strings.HasPrefix(destination, folder+"/") {
			return true
		}
	}
	return false
}
