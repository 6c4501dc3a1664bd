package tablecrypt.jvm;

/** The class loader of one read's Hadoop configuration: the one that it had, and then these classes. */
public class ReadLoader extends ClassLoader {
  ReadLoader(ClassLoader before) {
    super(before);
  }

  protected Class findClass(String name) throws ClassNotFoundException {
    if (!name.startsWith("tablecrypt.jvm.")) {
      throw new ClassNotFoundException(name);
    }
    return ReadLoader.class.getClassLoader().loadClass(name);
  }
}
