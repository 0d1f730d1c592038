import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Local files as an object store has them: no checksum file beside each file, and no permissions, for which Hadoop would
 * start a process per file.
 */
public final class PlainFiles extends RawLocalFileSystem {
  static Configuration configuration() {
    Configuration configuration = new Configuration();
    configuration.setClass("fs.file.impl", PlainFiles.class, RawLocalFileSystem.class);
    return configuration;
  }

  @Override
  public void setPermission(Path path, FsPermission permission) {
    // Whatever the process's umask gives.
  }
}
