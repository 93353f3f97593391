package image

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// closure returns all paths that programs of a root file system need to run: the programs, their
// libraries and loader, and all symbolic links to them. Names may be patterns.
func closure(root string, patterns ...string) ([]string, error) {
	c := collector{root: root, seen: map[string]bool{}}
	for _, pattern := range patterns {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, fmt.Errorf("reading pattern %q: %w", pattern, err)
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("nothing in the root file system is called %s", pattern)
		}
		for _, file := range files {
			if err := c.add(strings.TrimPrefix(file, root)); err != nil {
				return nil, fmt.Errorf("collecting %s: %w", strings.TrimPrefix(file, root), err)
			}
		}
	}
	return sortedKeys(c.seen), nil
}

type collector struct {
	root string
	seen map[string]bool
}

// add collects the file at a path inside the root: the links that lead to it, the file, and the
// libraries it is linked with.
func (c collector) add(path string) error {
	target, err := c.resolve(path, 0)
	if err != nil {
		return err
	}
	if c.seen[target] {
		return nil
	}
	c.seen[target] = true
	program, err := elf.Open(filepath.Join(c.root, target))
	if err != nil {
		// Not a program, so it needs nothing.
		return nil
	}
	defer func() { _ = program.Close() }()
	if section := program.Section(".interp"); section != nil {
		loader, err := section.Data()
		if err != nil {
			return fmt.Errorf("reading the loader's name: %w", err)
		}
		if err := c.add(strings.TrimRight(string(loader), "\x00")); err != nil {
			return err
		}
	}
	libraries, err := program.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the names of libraries: %w", err)
	}
	for _, library := range libraries {
		found, err := filepath.Glob(filepath.Join(c.root, "usr", "lib", "*-linux-gnu", library))
		if err != nil || len(found) == 0 {
			return fmt.Errorf("library %s is missing", library)
		}
		if err := c.add(strings.TrimPrefix(found[0], c.root)); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the path without symbolic links, relative to the root, and collects the links.
func (c collector) resolve(path string, depth int) (string, error) {
	if depth > 40 {
		return "", fmt.Errorf("%s: too many symbolic links", path)
	}
	resolved := "/"
	parts := strings.Split(strings.Trim(filepath.Clean(path), "/"), "/")
	for i, part := range parts {
		next := filepath.Join(resolved, part)
		target, err := os.Readlink(filepath.Join(c.root, next))
		if err != nil {
			if _, err := os.Lstat(filepath.Join(c.root, next)); err != nil {
				return "", err
			}
			resolved = next
			continue
		}
		c.seen[next] = true
		if !filepath.IsAbs(target) {
			target = filepath.Join(resolved, target)
		}
		return c.resolve(filepath.Join(append([]string{target}, parts[i+1:]...)...), depth+1)
	}
	return resolved, nil
}
