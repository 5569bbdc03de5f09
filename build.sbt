// The shim for people who live in sbt or IntelliJ. `make jar` (jvm-shim/compile.py) builds the same sources without sbt and is
// what the wheel ships; tests/test_sbt.py compares the class lists of the two jars.

ThisBuild / scalaVersion := "2.13.18" // the Scala of Spark 4.2's own jars
ThisBuild / organization := "org.apache.spark.sql.ivm"
ThisBuild / version := {
  val source = IO.read(file("pyspark_ivm") / "_version.py")
  """__version__ = "(.+)"""".r.findFirstMatchIn(source).get.group(1)
}

lazy val shim = (project in file("."))
  .settings(
    name := "pyspark-ivm",
    crossPaths := false,
    libraryDependencies += "org.apache.spark" %% "spark-sql" % "4.2.0" % Provided,
    Compile / scalaSource := baseDirectory.value / "jvm-shim" / "src" / "main" / "scala",
    Compile / resourceDirectory := baseDirectory.value / "jvm-shim" / "src" / "main" / "resources",
    // The one file of error conditions and reason codes, shared by JVM and Python.
    Compile / resourceGenerators += Def.task {
      val to = (Compile / resourceManaged).value / "org" / "apache" / "spark" / "sql" / "ivm" / "conditions.json"
      IO.copyFile(baseDirectory.value / "pyspark_ivm" / "conditions.json", to)
      Seq(to)
    }.taskValue,
    // Kept in step with jvm-shim/compile.py.
    scalacOptions ++= Seq(
      "-release", "17", "-encoding", "UTF-8", "-deprecation", "-feature", "-unchecked", "-Xlint:_,-byname-implicit", "-Werror"),
    // Nothing outside the shim is Scala or a test of sbt's.
    Compile / unmanagedSourceDirectories := Seq((Compile / scalaSource).value),
    Test / sources := Nil
  )
